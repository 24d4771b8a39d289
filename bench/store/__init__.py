"""Parts of bench/store_inputs and bench/bench_store."""
