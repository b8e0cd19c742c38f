"""HTML pages of the jobs `lag` and `trace`: self-contained files without scripts.

May import: firearrow.spark.pipelines (result classes only).
"""
