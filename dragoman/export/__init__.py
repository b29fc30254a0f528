"""Taking a model to the engines that others run: CTranslate2, Marian in transformers, ONNX; and back from Marian."""
