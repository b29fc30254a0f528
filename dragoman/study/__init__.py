"""The paper's tables as experiments, each one command and one report."""
