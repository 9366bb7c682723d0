/* A workload that waits for memory: reads a buffer again and again, and says how long a pass takes.

   usage: read MIB PASSES        prints the mean wall time of a pass, ns, as JSON; the file named by MARKS, if there is one, gets when each began
                                 and the last ended, ns of CLOCK_MONOTONIC, as native 64-bit integers */

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static uint64_t sum(const uint64_t *words, size_t n) {
    /* Eight sums, so that no addition waits for the one before. */
    uint64_t sums[8] = {0};
    for (size_t i = 0; i < n; i += 8)
        for (int lane = 0; lane < 8; lane++)
            sums[lane] += words[i + lane];
    uint64_t all = 0;
    for (int lane = 0; lane < 8; lane++)
        all += sums[lane];
    return all;
}

int main(int argc, char **argv) {
    if (argc != 3)
        return 2;
    size_t n = strtoul(argv[1], NULL, 10) * (1u << 20) / sizeof(uint64_t);
    unsigned long passes = strtoul(argv[2], NULL, 10);
    uint64_t *words = malloc(n * sizeof *words), *marks = calloc(passes + 1, sizeof *marks);
    if (!words || !marks || !n || !passes)
        return 1;
    for (size_t i = 0; i < n; i++)
        words[i] = i;
    uint64_t check = sum(words, n);
    for (unsigned long pass = 0; pass < passes; pass++) {
        marks[pass] = now_ns();
        words[pass % n]++;
        check += sum(words, n);
    }
    marks[passes] = now_ns();
    if (getenv("MARKS")) {
        FILE *file = fopen(getenv("MARKS"), "wb");
        if (!file || fwrite(marks, sizeof *marks, passes + 1, file) != passes + 1 || fclose(file))
            return 1;
    }
    printf("{\"pass_ns\": %.1f, \"check\": %llu}\n", (double)(marks[passes] - marks[0]) / passes, (unsigned long long)check);
    return 0;
}
