"""What runs inside a worker process. Importable without verifiers."""
