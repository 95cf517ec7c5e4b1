/* far LIBRARY DIALECT put|publish TURN_MS THREADS...: how many requests a second so many threads get answered over a
   PMI library, each number of threads in turn. PMI-1 is not safe for threads: a lock is held for the round trip. */

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define THREADS_MAX 64

static const char *value = "tcp://127.0.0.1:47110";
static int (*put2)(const char *key, const char *value);
static int (*publish2)(const char *service, const void *info, const char *port);
static int (*unpublish2)(const char *service, const void *info);
static int (*put1)(const char *kvsname, const char *key, const char *value);
static int (*publish1)(const char *service, const char *port);
static int (*unpublish1)(const char *service);
static char kvsname[512];
static int is_first, is_put;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_int over, failed;
static atomic_long done;

static int one(const char *key, int is_second)
{
    int status;
    if (is_first)
        pthread_mutex_lock(&lock);
    if (is_put)
        status = is_first ? put1(kvsname, key, value) : put2(key, value);
    else if (is_second)
        status = is_first ? unpublish1(key) : unpublish2(key, NULL);
    else
        status = is_first ? publish1(key, value) : publish2(key, NULL, value);
    if (is_first)
        pthread_mutex_unlock(&lock);
    return status;
}

static void *ask(void *number)
{
    char key[32];
    snprintf(key, sizeof key, "thread-%ld", (long)number);
    for (int is_second = 0; !over || is_second; is_second = !is_put && !is_second) {
        if (one(key, is_second) != 0) {
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
    pthread_t workers[THREADS_MAX];
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

static void *library;

static void *found(const char *name)
{
    void *function = dlsym(library, name);
    if (function == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        exit(1);
    }
    return function;
}

static int begin(void)
{
    int spawned, size, rank, appnum;
    if (is_first) {
        put1 = (int (*)(const char *, const char *, const char *))found("PMI_KVS_Put");
        publish1 = (int (*)(const char *, const char *))found("PMI_Publish_name");
        unpublish1 = (int (*)(const char *))found("PMI_Unpublish_name");
        int (*init)(int *) = (int (*)(int *))found("PMI_Init");
        int (*name)(char *, int) = (int (*)(char *, int))found("PMI_KVS_Get_my_name");
        return init(&spawned) != 0 || name(kvsname, sizeof kvsname) != 0;
    }
    put2 = (int (*)(const char *, const char *))found("PMI2_KVS_Put");
    publish2 = (int (*)(const char *, const void *, const char *))found("PMI2_Nameserv_publish");
    unpublish2 = (int (*)(const char *, const void *))found("PMI2_Nameserv_unpublish");
    int (*init)(int *, int *, int *, int *) = (int (*)(int *, int *, int *, int *))found("PMI2_Init");
    return init(&spawned, &size, &rank, &appnum) != 0;
}

int main(int argc, char **argv)
{
    if (argc < 6)
        return 2;
    library = dlopen(argv[1], RTLD_NOW);
    if (library == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    is_first = strcmp(argv[2], "1") == 0;
    is_put = strcmp(argv[3], "put") == 0;
    if (begin() != 0)
        return 1;
    for (int i = 5; i < argc; i++) {
        int threads = atoi(argv[i]);
        if (threads < 1 || threads > THREADS_MAX)
            return 2;
        double per_second = rate(threads, atol(argv[4]));
        printf("{\"case\": \"%s\", \"in_flight\": %d, \"per_second\": %f}\n",
               is_put ? "PutByThreads" : "PublishByThreads", threads, per_second);
    }
    int (*finalize)(void) = (int (*)(void))found(is_first ? "PMI_Finalize" : "PMI2_Finalize");
    return finalize() != 0 || failed;
}
