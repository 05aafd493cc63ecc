"""What the benchmarks compare with: other ways to do the same job, tuned as their docs advise."""
