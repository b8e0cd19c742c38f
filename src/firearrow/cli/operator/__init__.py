"""The commands of operators: `firearrow NOUN VERB ...`, one module for each noun. Only the one that is asked for is loaded."""
