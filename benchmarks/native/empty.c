int bench_empty(unsigned flags) {
    (void)flags;
    return 0;
}
