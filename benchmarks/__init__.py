"""benchmarks: what each part costs, measured beside its peers. Nothing imports this package."""
