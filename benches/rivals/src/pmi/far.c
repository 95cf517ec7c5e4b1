/* far LIBRARY TURN_MS ROUNDS: how many puts a second 1 and 8 threads get answered over a PMI-2 library. */

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define THREADS 8
#define ROUNDS_MAX 1000

static int (*put)(const char *key, const char *value);
static atomic_int over, failed;
static atomic_long done;

static void *ask(void *number)
{
    char key[32];
    snprintf(key, sizeof key, "put-%ld", (long)number);
    while (!over) {
        if (put(key, "tcp://127.0.0.1:47110") != 0) {
            failed = 1;
            break;
        }
        done++;
    }
    return NULL;
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec * 1e-9;
}

static double rate(int threads, long turn_ms)
{
    pthread_t workers[THREADS];
    struct timespec turn = {turn_ms / 1000, turn_ms % 1000 * 1000000};
    over = 0;
    done = 0;
    double start = now();
    for (long i = 0; i < threads; i++)
        if (pthread_create(&workers[i], NULL, ask, (void *)i) != 0)
            exit(1);
    nanosleep(&turn, NULL);
    over = 1;
    for (int i = 0; i < threads; i++)
        pthread_join(workers[i], NULL);
    return done / (now() - start);
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
    if (argc != 4)
        return 2;
    void *library = dlopen(argv[1], RTLD_NOW);
    if (library == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    int (*init)(int *, int *, int *, int *) = (int (*)(int *, int *, int *, int *))dlsym(library, "PMI2_Init");
    int (*finalize)(void) = (int (*)(void))dlsym(library, "PMI2_Finalize");
    put = (int (*)(const char *, const char *))dlsym(library, "PMI2_KVS_Put");
    int spawned, size, rank, appnum;
    if (init == NULL || finalize == NULL || put == NULL || init(&spawned, &size, &rank, &appnum) != 0)
        return 1;
    long turn_ms = atol(argv[2]), rounds = atol(argv[3]);
    static const int threads[] = {1, THREADS};
    static double samples[2][ROUNDS_MAX];
    if (rounds < 1 || rounds > ROUNDS_MAX)
        return 2;
    for (long round = 0; round < rounds; round++)
        for (int i = 0; i < 2; i++)
            samples[i][round] = rate(threads[i], turn_ms);
    for (int i = 0; i < 2; i++) {
        qsort(samples[i], rounds, sizeof samples[i][0], compare);
        printf("{\"case\": \"PutByThreads\", \"in_flight\": %d, \"per_second\": %f}\n", threads[i], samples[i][rounds / 2]);
    }
    return finalize() != 0 || failed;
}
