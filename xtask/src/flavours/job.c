/* What a job of MPI does on its way to its work, by the first argument: `meet` (all add up), `spawn` (two more processes
   join and add up too), `names` (one rank publishes a name, another looks it up). The first rank says how many met. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *library(void)
{
    static char version[MPI_MAX_LIBRARY_VERSION_STRING];
    int size;
    MPI_Get_library_version(version, &size);
    version[strcspn(version, "\n")] = 0;
    for (char *at = version; *at; at++)
        if (*at == '\t')
            *at = ' ';
    return version;
}

/* All of a communicator add up their ranks, and pass on what is too large for one message. */
static void meet(MPI_Comm all, const char *kind)
{
    enum { SIZE = 1 << 20 };
    int rank, size, sum;
    MPI_Comm_rank(all, &rank);
    MPI_Comm_size(all, &size);
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, all);
    int left = (rank + size - 1) % size, right = (rank + 1) % size;
    char *sent = malloc(SIZE), *got = malloc(SIZE);
    memset(sent, rank + 1, SIZE);
    MPI_Sendrecv(sent, SIZE, MPI_CHAR, right, 0, got, SIZE, MPI_CHAR, left, 0, all, MPI_STATUS_IGNORE);
    if (sum != size * (size - 1) / 2 || got[0] != (char)(left + 1) || got[SIZE - 1] != (char)(left + 1))
        MPI_Abort(MPI_COMM_WORLD, 3);
    if (rank == 0)
        printf("%s %d: %s\n", kind, size, library());
    free(sent);
    free(got);
}

static void spawn(const char *program)
{
    MPI_Comm parent, other, all;
    char *words[] = { "spawn", NULL };
    MPI_Comm_get_parent(&parent);
    other = parent;
    if (parent == MPI_COMM_NULL)
        MPI_Comm_spawn(program, words, 2, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &other, MPI_ERRCODES_IGNORE);
    MPI_Intercomm_merge(other, parent != MPI_COMM_NULL, &all);
    meet(all, "spawned");
    MPI_Comm_free(&all);
    MPI_Comm_disconnect(&other);
}

static void names(void)
{
    char port[MPI_MAX_PORT_NAME] = "ocean:4711", found[MPI_MAX_PORT_NAME] = "";
    int rank, size, is_gone;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (rank == 0)
        MPI_Publish_name("ocean", MPI_INFO_NULL, port);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == size - 1) {
        MPI_Lookup_name("ocean", MPI_INFO_NULL, found);
        if (strcmp(port, found) != 0)
            MPI_Abort(MPI_COMM_WORLD, 3);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0)
        MPI_Unpublish_name("ocean", MPI_INFO_NULL, port);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    is_gone = rank != size - 1 || MPI_Lookup_name("ocean", MPI_INFO_NULL, found) != MPI_SUCCESS;
    if (!is_gone)
        MPI_Abort(MPI_COMM_WORLD, 4);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0)
        printf("named %d: %s\n", size, library());
}

int main(int count, char **words)
{
    MPI_Init(&count, &words);
    if (count != 2)
        MPI_Abort(MPI_COMM_WORLD, 2);
    if (strcmp(words[1], "spawn") == 0)
        spawn(words[0]);
    else if (strcmp(words[1], "names") == 0)
        names();
    else
        meet(MPI_COMM_WORLD, "met");
    MPI_Finalize();
    return 0;
}
