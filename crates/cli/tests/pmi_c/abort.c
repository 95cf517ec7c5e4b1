/* One process ends the job; the others wait for it in vain. */
#include <pmi.h>

int main(void)
{
    int spawned, rank;
    if (PMI_Init(&spawned) != PMI_SUCCESS || PMI_Get_rank(&rank) != PMI_SUCCESS)
        return 3;
    if (rank == 1)
        PMI_Abort(42, "on purpose");
    PMI_Barrier();
    return 5;
}
