/* A program of MPI that hangs, loses a rank or goes on, as its first argument says. */
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    int rank, size, got = 0;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    /* So that all connections are made. */
    MPI_Barrier(MPI_COMM_WORLD);
    if (strcmp(argv[1], "receive") == 0) {
        /* What nobody ever sends. */
        MPI_Recv(&got, 1, MPI_INT, (rank + 1) % size, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    } else if (strcmp(argv[1], "lose") == 0) {
        if (rank == 1)
            raise(SIGKILL);
        MPI_Barrier(MPI_COMM_WORLD);
    } else if (strcmp(argv[1], "send") == 0) {
        /* Messages now and then, and nothing else, for as many seconds as the second argument says. */
        double end = MPI_Wtime() + atof(argv[2]);
        int goes_on = 1;
        while (goes_on) {
            goes_on = MPI_Wtime() < end;
            usleep(100000);
            MPI_Bcast(&goes_on, 1, MPI_INT, 0, MPI_COMM_WORLD);
        }
        if (rank == 0)
            fputs("sent\n", stderr);
    }
    MPI_Finalize();
    return 0;
}
