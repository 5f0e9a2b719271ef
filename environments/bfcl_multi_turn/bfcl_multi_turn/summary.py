def summarize(run_dir):
    return {"table": ""}
