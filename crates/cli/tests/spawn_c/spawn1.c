/* Spawns two programs by PMI-1, both of them this one, and meets them: by the preput pairs and by a published name.
   With an argument it spawns a program of that name instead, on the hosts of the file that a second one names, and prints
   whether that was refused. */
#include <pmi.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CHECK(expression)                                                            \
    do {                                                                             \
        int status = (expression);                                                   \
        if (status != PMI_SUCCESS) {                                                 \
            fprintf(stderr, "line %d: %s gives %d\n", __LINE__, #expression, status); \
            exit(3);                                                                 \
        }                                                                            \
    } while (0)
#define REQUIRE(condition)                                            \
    do {                                                              \
        if (!(condition)) {                                           \
            fprintf(stderr, "line %d: not %s\n", __LINE__, #condition); \
            exit(4);                                                  \
        }                                                             \
    } while (0)

static void child(int argc, char **argv)
{
    int size, rank, appnum;
    char name[300], value[1100], service[64];

    CHECK(PMI_Get_size(&size));
    CHECK(PMI_Get_rank(&rank));
    CHECK(PMI_Get_appnum(&appnum));
    REQUIRE(size == 3 && appnum == (rank == 2));
    REQUIRE(getenv("PMI_SPAWNED") && !strcmp(getenv("PMI_SPAWNED"), "1"));
    CHECK(PMI_KVS_Get_my_name(name, sizeof name));
    CHECK(PMI_KVS_Get(name, "PARENT", value, sizeof value));
    REQUIRE(!strcmp(value, "port with spaces"));
    if (appnum == 0) {
        char directory[300];
        REQUIRE(argc == 4 && !strcmp(argv[2], "an argument") && !strcmp(argv[3], "x=y;z"));
        REQUIRE(getcwd(directory, sizeof directory) && !strcmp(directory, "/"));
    } else {
        REQUIRE(argc == 2);
    }
    /* Their barrier is their own. */
    CHECK(PMI_Barrier());
    if (rank == 0) {
        CHECK(PMI_Lookup_name("parent", value));
        REQUIRE(!strcmp(value, "the parent's port"));
        snprintf(service, sizeof service, "child-of-%s", argv[1]);
        CHECK(PMI_Publish_name(service, "the child's port"));
    }
    printf("child %d of %d is content\n", rank, size);
}

static void parent(char *self)
{
    int rank, errors[3] = {9, 9, 9}, maxprocs[] = {2, 1}, infos[] = {1, 0};
    char id[16], service[64], port[1100];
    CHECK(PMI_Get_rank(&rank));
    if (rank == 0) {
        CHECK(PMI_Publish_name("parent", "the parent's port"));
    }
    CHECK(PMI_Barrier());
    if (rank == 1) {
        snprintf(id, sizeof id, "%d", rank);
        const char *commands[] = {self, self};
        const char *first[] = {id, "an argument", "x=y;z", NULL}, *second[] = {id, NULL};
        const char **arguments[] = {first, second};
        PMI_keyval_t directory = {"wdir", "/"}, preput = {"PARENT", "port with spaces"};
        const PMI_keyval_t *info[] = {&directory, NULL};
        CHECK(PMI_Spawn_multiple(2, commands, arguments, maxprocs, infos, info, 1, &preput, errors));
        REQUIRE(!errors[0] && !errors[1] && !errors[2]);
        snprintf(service, sizeof service, "child-of-%d", rank);
        while (PMI_Lookup_name(service, port) != PMI_SUCCESS) {
            usleep(10000);
        }
        REQUIRE(!strcmp(port, "the child's port"));
    }
    CHECK(PMI_Barrier());
    printf("parent %d is content\n", rank);
}

int main(int argc, char **argv)
{
    int spawned;

    CHECK(PMI_Init(&spawned));
    if (spawned) {
        child(argc, argv);
    } else if (argc > 1) {
        int rank, error = 0, maxprocs = 2, infos = 0;
        const char *commands[] = {argv[1]}, *none[] = {NULL}, **arguments[] = {none};
        CHECK(PMI_Get_rank(&rank));
        if (rank == 0) {
            PMI_keyval_t hosts = {"hostfile", argc > 2 ? argv[2] : ""};
            const PMI_keyval_t *info[] = {&hosts};
            infos = argc > 2;
            int status = PMI_Spawn_multiple(1, commands, arguments, &maxprocs, &infos, infos ? info : NULL, 0,
                                            NULL, &error);
            printf("spawn %s\n", status == PMI_SUCCESS ? "succeeded" : "was refused");
        }
        CHECK(PMI_Barrier());
    } else {
        parent(argv[0]);
    }
    CHECK(PMI_Finalize());
    return 0;
}
