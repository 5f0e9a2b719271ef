"""What a run measured: tables, statistics, comparisons, plots. Everything is computed from `traces.jsonl`."""
