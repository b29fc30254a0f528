"""Text on disk becomes batches of ids: corpora, cleaning, vocabulary, store, batches."""
