/* Rank 1 exits before it has initialized MPI, so that the others wait for it in MPI_Init. */
#include <mpi.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv)
{
    const char *rank = getenv("PMI_RANK");

    if (rank && !strcmp(rank, "1"))
        return 5;
    MPI_Init(&argc, &argv);
    MPI_Finalize();
    return 0;
}
