/* What programs of different jobs do by names. A port is that of MPI where MPI_Open_port works, which it does not in MPICH
   over UCX, and else a socket's: for the process manager both are words. */
#include <arpa/inet.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define CHECK(call) do { if (!(call)) { perror(#call); MPI_Abort(MPI_COMM_WORLD, 3); } } while (0)

static const char prefix[] = "socket:";

static int open_port(char *port)
{
    if (MPI_Open_port(MPI_INFO_NULL, port) == MPI_SUCCESS)
        return -1;
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t size = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(listener >= 0);
    CHECK(bind(listener, (struct sockaddr *)&address, size) == 0);
    CHECK(listen(listener, 1) == 0);
    CHECK(getsockname(listener, (struct sockaddr *)&address, &size) == 0);
    sprintf(port, "%s%d", prefix, ntohs(address.sin_port));
    return listener;
}

/* Accepts who finds the port, and says what it sends. */
static void accept_one(int listener, char *port)
{
    int said = 0;
    if (listener < 0) {
        MPI_Comm other;
        MPI_Comm_accept(port, MPI_INFO_NULL, 0, MPI_COMM_SELF, &other);
        MPI_Recv(&said, 1, MPI_INT, 0, 0, other, MPI_STATUS_IGNORE);
        MPI_Comm_disconnect(&other);
    } else {
        int other = accept(listener, NULL, NULL);
        CHECK(other >= 0);
        CHECK(read(other, &said, sizeof said) == sizeof said);
        close(other);
    }
    printf("heard %d\n", said);
}

static void connect_to(char *port)
{
    int said = 42;
    if (strncmp(port, prefix, sizeof prefix - 1) != 0) {
        MPI_Comm other;
        MPI_Comm_connect(port, MPI_INFO_NULL, 0, MPI_COMM_SELF, &other);
        MPI_Send(&said, 1, MPI_INT, 0, 0, other);
        MPI_Comm_disconnect(&other);
    } else {
        struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
        address.sin_port = htons((unsigned short)atoi(port + sizeof prefix - 1));
        int other = socket(AF_INET, SOCK_STREAM, 0);
        CHECK(connect(other, (struct sockaddr *)&address, sizeof address) == 0);
        CHECK(write(other, &said, sizeof said) == sizeof said);
        close(other);
    }
}

static const char *said(int result)
{
    return result == MPI_SUCCESS ? "well" : "badly";
}

/* Does what each argument says with the name "ocean". */
int main(int argc, char **argv)
{
    char port[MPI_MAX_PORT_NAME] = "", found[MPI_MAX_PORT_NAME] = "";
    int rank, listener = -1;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (int at = 1; rank == 0 && at < argc; at++) {
        if (strcmp(argv[at], "publish") == 0) {
            if (!port[0])
                listener = open_port(port);
            printf("published %s\n", said(MPI_Publish_name("ocean", MPI_INFO_NULL, port)));
        } else if (strcmp(argv[at], "lookup") == 0)
            printf("looked up %s\n", said(MPI_Lookup_name("ocean", MPI_INFO_NULL, found)));
        else if (strcmp(argv[at], "unpublish") == 0)
            printf("unpublished %s\n", said(MPI_Unpublish_name("ocean", MPI_INFO_NULL, port)));
        else if (strcmp(argv[at], "accept") == 0)
            accept_one(listener, port);
        else if (strcmp(argv[at], "connect") == 0)
            connect_to(found);
        else if (strcmp(argv[at], "wait") == 0)
            while (getchar() != '\n')
                ;
    }
    MPI_Finalize();
    return 0;
}
