/* The network of an emulated cluster: a switch in user space. Each node is a network namespace with
 * one TUN device; this program holds the other ends, and passes every packet on when it is due:
 *
 *     relay DELAY_US MBIT_PER_S SECONDS NAMESPACE…
 *
 * A node sends and receives at most MBIT_PER_S each way, and a packet takes DELAY_US more. Node k
 * (from 0) has the address 10.77.0.(k + 1). Prints "ready" once the devices are there, ends after
 * SECONDS or when its standard input is closed, so that it never outlives the script that started
 * it (run.sh). No packet leaves the namespaces. */
#include <errno.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/clock.h"

#define MAX_NODES 64
#define PACKET_BYTES 65536
#define QUEUE_PACKETS 4096 /* a full queue drops, as a switch would */

typedef struct packet {
    double due_s;
    size_t bytes;
    unsigned char *data;
} packet;

/* What waits to be given to one node, in the order of its due times. */
typedef struct node {
    int fd;
    double sends_until_s, receives_until_s; /* when its link is free again */
    packet queue[QUEUE_PACKETS];
    int first, count;
} node;

static node nodes[MAX_NODES];
static int node_count;
static double delay_s, bytes_per_s;

static void die(const char *what, const char *name)
{
    fprintf(stderr, "relay: %s %s: %s\n", what, name, strerror(errno));
    exit(1);
}

/* A TUN device belongs to the namespace in which it is made. */
static int open_device(const char *name, int home)
{
    char path[256];
    struct ifreq request;
    snprintf(path, sizeof path, "/var/run/netns/%s", name);
    int space = open(path, O_RDONLY | O_CLOEXEC);
    if (space < 0 || setns(space, CLONE_NEWNET) != 0)
        die("cannot enter the network namespace", name);
    int fd = open("/dev/net/tun", O_RDWR | O_CLOEXEC | O_NONBLOCK);
    memset(&request, 0, sizeof request);
    request.ifr_flags = IFF_TUN | IFF_NO_PI;
    snprintf(request.ifr_name, sizeof request.ifr_name, "ta0");
    if (fd < 0 || ioctl(fd, TUNSETIFF, &request) != 0)
        die("cannot make a TUN device in", name);
    if (setns(home, CLONE_NEWNET) != 0)
        die("cannot come back from", name);
    close(space);
    return fd;
}

/* The node whose address an IPv4 packet is for, or -1. */
static int destination(const unsigned char *data, size_t bytes)
{
    if (bytes < 20 || data[0] >> 4 != 4 || data[16] != 10 || data[17] != 77 || data[18] != 0)
        return -1;
    return data[19] >= 1 && data[19] <= node_count ? data[19] - 1 : -1;
}

static void take_packet(node *from, const unsigned char *data, size_t bytes)
{
    int to = destination(data, bytes);
    if (to < 0 || nodes[to].count == QUEUE_PACKETS)
        return;
    double now = ta_clock_s(), on_the_wire_s = (double)bytes / bytes_per_s;
    double sent = (from->sends_until_s > now ? from->sends_until_s : now) + on_the_wire_s;
    double received = nodes[to].receives_until_s + on_the_wire_s;
    received = received > sent ? received : sent;
    from->sends_until_s = sent;
    nodes[to].receives_until_s = received;
    packet *p = &nodes[to].queue[(nodes[to].first + nodes[to].count) % QUEUE_PACKETS];
    p->data = malloc(bytes);
    if (!p->data)
        return;
    memcpy(p->data, data, bytes);
    p->bytes = bytes;
    p->due_s = received + delay_s;
    nodes[to].count += 1;
}

static void give_packets(node *to)
{
    while (to->count > 0 && to->queue[to->first].due_s <= ta_clock_s()) {
        packet *p = &to->queue[to->first];
        if (write(to->fd, p->data, p->bytes) < 0 && errno == EAGAIN)
            return;
        free(p->data);
        to->first = (to->first + 1) % QUEUE_PACKETS;
        to->count -= 1;
    }
}

/* Until the next packet is due: at most a tenth of a second. */
static struct timespec next_wait(void)
{
    double wait = 0.1, now = ta_clock_s();
    for (int i = 0; i < node_count; i++)
        if (nodes[i].count > 0 && nodes[i].queue[nodes[i].first].due_s - now < wait)
            wait = nodes[i].queue[nodes[i].first].due_s - now;
    wait = wait > 0 ? wait : 0;
    return (struct timespec){0, (long)(wait * 1e9)};
}

static void run_until(double end_s)
{
    static unsigned char buffer[PACKET_BYTES];
    struct pollfd fds[MAX_NODES + 1];
    while (ta_clock_s() < end_s) {
        for (int i = 0; i < node_count; i++)
            fds[i] = (struct pollfd){nodes[i].fd, POLLIN, 0};
        fds[node_count] = (struct pollfd){STDIN_FILENO, POLLIN, 0};
        struct timespec wait = next_wait();
        if (ppoll(fds, (nfds_t)node_count + 1, &wait, NULL) < 0 && errno != EINTR)
            die("cannot wait for", "packets");
        if (fds[node_count].revents) /* closed: whoever started us is gone */
            return;
        for (int i = 0; i < node_count; i++) {
            ssize_t bytes = fds[i].revents ? read(nodes[i].fd, buffer, sizeof buffer) : 0;
            if (bytes > 0)
                take_packet(&nodes[i], buffer, (size_t)bytes);
        }
        for (int i = 0; i < node_count; i++)
            give_packets(&nodes[i]);
    }
}

int main(int argc, char **argv)
{
    if (argc < 5 || argc > MAX_NODES + 4) {
        fputs("usage: relay DELAY_US MBIT_PER_S SECONDS NAMESPACE…\n", stderr);
        return 2;
    }
    delay_s = atof(argv[1]) * 1e-6;
    bytes_per_s = atof(argv[2]) * 1e6 / 8;
    double seconds = atof(argv[3]);
    int home = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
    if (!(delay_s >= 0) || !(bytes_per_s > 0) || !(seconds > 0) || home < 0) {
        fputs("relay: DELAY_US must be 0 or more, MBIT_PER_S and SECONDS above 0\n", stderr);
        return 2;
    }
    for (node_count = 0; node_count < argc - 4; node_count++)
        nodes[node_count].fd = open_device(argv[4 + node_count], home);
    puts("ready");
    fflush(stdout);
    run_until(ta_clock_s() + seconds);
    return 0;
}
