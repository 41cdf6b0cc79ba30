/* Groups over a transport of the caller's own (src/group/custom.c and its files): the conformance
 * suite over sockets, between threads and between processes, with a transport of each sort; then
 * faults, and bad input. Decode and attention over such a group are in
 * test_custom_steps.c.
 *
 *     test_group_custom [--every N] */
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <treeattn/cluster.h>

#include "base/clock.h"
#include "group/agree.h"
#include "group/custom.h"
#include "lib/conformance.h"
#include "lib/expect.h"
#include "lib/memory_transport.h"
#include "lib/options.h"
#include "lib/patience.h"
#include "lib/socket_transport.h"
#include "lib/spoil.h"

#define TIMEOUT_MS 1000 /* where a rank is lost, once all others have met */

void setUp(void)
{
}

void tearDown(void)
{
}

static void sleep_ms(int milliseconds)
{
    struct timespec time = {milliseconds / 1000, (long)(milliseconds % 1000) * 1000000};
    nanosleep(&time, NULL);
}

static ta_group_config config_of(int timeout_ms)
{
    ta_group_config config = TA_GROUP_CONFIG_INIT;
    config.timeout_ms = timeout_ms;
    return config;
}

/* ---- Conformance ----------------------------------------------------------------------------- */

static ta_status conform(ta_group *group, void *context)
{
    return conformance_run(group, &conformance_host, *(size_t *)context);
}

/* Where `--every` asks for less, long messages are what takes the time. */
static size_t most_bytes(conformance_size size)
{
    size_t few = 65540;
    return options.every > 1 && size.most_bytes > few ? few : size.most_bytes;
}

static void test_conformance_of_threads(void)
{
    static const conformance_size sizes[] = {
        {1, 65540}, {2, 4 << 20}, {3, 1 << 20}, {5, 65540}, {8, 4096}};
    ta_group_config config = config_of(LONG_WAIT_MS);
    for (int i = 0; i < 5; ++i) {
        size_t most = most_bytes(sizes[i]);
        EXPECT_OK(socket_run_threads(sizes[i].ranks, SOCKET_IN_CALLS, &config, conform, &most));
    }
}

static void test_conformance_of_processes(void)
{
    static const conformance_size sizes[] = {{2, 1 << 20}, {3, 65540}, {5, 4096}};
    ta_group_config config = config_of(LONG_WAIT_MS);
    for (int i = 0; i < 3; ++i) {
        size_t most = most_bytes(sizes[i]);
        EXPECT_OK(socket_run_processes(sizes[i].ranks, SOCKET_IN_CALLS, &config, conform, &most));
    }
}

/* Transports that work between calls. */
static void test_conformance_of_other_modes(void)
{
    ta_group_config config = config_of(LONG_WAIT_MS);
    size_t most = 65540;
    EXPECT_OK(socket_run_threads(3, SOCKET_CANCELS, &config, conform, &most));
    EXPECT_OK(socket_run_threads(3, SOCKET_HOLDS, &config, conform, &most));
}

/* ---- Faults ---------------------------------------------------------------------------------- */

/* Where ranks meet outside of their group, threads or processes, for as long as it takes. */
static pthread_barrier_t *in_turn;

static void meet_in_turn(int ranks)
{
    pthread_barrierattr_t of_processes;
    if (in_turn)
        munmap(in_turn, sizeof *in_turn);
    in_turn =
        mmap(NULL, sizeof *in_turn, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    TEST_ASSERT_TRUE(in_turn != MAP_FAILED);
    pthread_barrierattr_init(&of_processes);
    pthread_barrierattr_setpshared(&of_processes, PTHREAD_PROCESS_SHARED);
    TEST_ASSERT_EQUAL_INT(0, pthread_barrier_init(in_turn, &of_processes, (unsigned)ranks));
    pthread_barrierattr_destroy(&of_processes);
}

/* Rank 2 comes when the others have given it up: the same rank is named everywhere, also by ranks
 * that wait for others. */
static ta_status late_rank(ta_group *group, void *context)
{
    ta_status status = TA_OK;
    (void)context;
    group->timeout_ms = TIMEOUT_MS;
    pthread_barrier_wait(in_turn);
    for (int i = 0; i < 2 && ta_group_rank(group) != 2 && status == TA_OK; ++i)
        status = rank_expect_error(TA_ERR_TIMEOUT, ta_group_barrier(group, NULL),
                                   "rank 2 did not arrive", "1000 ms");
    pthread_barrier_wait(in_turn);
    if (ta_group_rank(group) == 2)
        status = rank_expect_error(TA_ERR_TIMEOUT, ta_group_barrier(group, NULL), "rank 2 did not",
                                   "1000 ms");
    return status;
}

static ta_status leave_early(ta_group *group, void *context)
{
    (void)context;
    if (ta_group_rank(group) == 1)
        return TA_OK; /* its group is destroyed, its sockets are closed */
    ta_status status = ta_group_barrier(group, NULL);
    RANK_EXPECT(status == TA_ERR_ABORTED || status == TA_ERR_SYSTEM);
    RANK_EXPECT(strstr(ta_last_error(), "rank 1"));
    return TA_OK;
}

static ta_status die(ta_group *group, void *context)
{
    int64_t begin = ta_clock_ms();
    (void)context;
    if (ta_group_rank(group) == 1)
        _exit(0); /* as a process that is killed: nobody says goodbye */
    ta_status status = ta_group_barrier(group, NULL);
    RANK_EXPECT(status == TA_ERR_SYSTEM);
    RANK_EXPECT(strstr(ta_last_error(), "rank 1 is lost"));
    RANK_EXPECT(ta_clock_ms() - begin < LONG_WAIT_MS / 2); /* long before the timeout */
    return TA_OK;
}

static ta_status abort_rank(ta_group *group, void *context)
{
    int64_t begin = ta_clock_ms();
    (void)context;
    if (ta_group_rank(group) == 0) {
        sleep_ms(100);
        ta_group_abort(group, "for a reason");
    }
    TA_TRY(rank_expect_error(TA_ERR_ABORTED, ta_group_barrier(group, NULL), "rank 0 aborted",
                             "for a reason"));
    RANK_EXPECT(ta_clock_ms() - begin < LONG_WAIT_MS / 2);
    return TA_OK;
}

static void *abort_from_a_thread(void *group)
{
    sleep_ms(100);
    ta_group_abort(group, "from another thread");
    return NULL;
}

/* Every rank waits for rank 2, which waits for nobody; another thread of rank 1 aborts. */
static ta_status abort_in_a_call(ta_group *group, void *context)
{
    pthread_t thread;
    (void)context;
    if (ta_group_rank(group) == 1)
        pthread_create(&thread, NULL, abort_from_a_thread, group);
    if (ta_group_rank(group) == 2)
        pthread_barrier_wait(in_turn);
    ta_status status = rank_expect_error(TA_ERR_ABORTED, ta_group_barrier(group, NULL),
                                         "rank 1 aborted", "another thread");
    if (ta_group_rank(group) == 1)
        pthread_join(thread, NULL);
    if (ta_group_rank(group) != 2)
        pthread_barrier_wait(in_turn);
    return status;
}

static ta_status abort_part(ta_group *group, void *context)
{
    ta_group *part;
    (void)context;
    TA_TRY(ta_group_split(group, ta_group_rank(group) % 2, 0, &part));
    if (ta_group_rank(group) == 0)
        ta_group_abort(part, "only this part");
    ta_status status = ta_group_barrier(part, NULL);
    RANK_EXPECT(status == (ta_group_rank(group) % 2 ? TA_OK : TA_ERR_ABORTED));
    ta_group_destroy(part);
    return ta_group_barrier(group, NULL);
}

/* Two parts of the same ranks have channels of their own: a message of one that is under way is not
 * taken for one of the other. */
static ta_status parts_at_once(ta_group *group, void *context)
{
    ta_group *parts[2];
    char out[2][600], in[2][600];
    int size = ta_group_size(group), next = (ta_group_rank(group) + 1) % size;
    int previous = (ta_group_rank(group) + size - 1) % size;
    (void)context;
    for (int i = 0; i < 2; ++i) {
        TA_TRY(ta_group_split(group, 0, 0, &parts[i]));
        memset(out[i], ta_group_rank(group) + 10 * i, sizeof out[i]);
        memset(in[i], 99, sizeof in[i]);
    }
    TA_TRY(ta_group_start(parts[0], out[0], 600, next, in[0], 600, previous, NULL));
    TA_TRY(ta_group_exchange(parts[1], out[1], 600, next, in[1], 600, previous, NULL));
    TA_TRY(ta_group_finish(parts[0], NULL));
    for (int i = 0; i < 2; ++i) {
        RANK_EXPECT(in[i][0] == previous + 10 * i && in[i][599] == previous + 10 * i);
        ta_group_destroy(parts[i]);
    }
    return TA_OK;
}

/* Messages that just fit into a head, and that just do not. */
static ta_status lengths_of_heads(ta_group *group, void *context)
{
    enum { MOST = sizeof(((ta_custom_head *)NULL)->data) };
    char out[MOST + 1], in[MOST + 1];
    int other = 1 - ta_group_rank(group);
    (void)context;
    for (size_t bytes = MOST - 1; bytes <= MOST + 1; ++bytes) {
        memset(out, (int)bytes + ta_group_rank(group), sizeof out);
        memset(in, 0, sizeof in);
        TA_TRY(ta_group_exchange(group, out, bytes, other, in, bytes, other, NULL));
        RANK_EXPECT(in[0] == (char)((int)bytes + other) && in[bytes - 1] == in[0]);
        RANK_EXPECT(bytes > MOST || in[bytes] == 0);
    }
    return TA_OK;
}

static ta_status another_size(ta_group *group, void *context)
{
    static const size_t sizes[] = {12, 16, 3 << 20, 4096}; /* short ones, long ones, of both */
    static char data[2][3 << 20];
    int which = *(int *)context, rank = ta_group_rank(group);
    size_t own = sizes[which], other = sizes[(which + 1) % 4];
    if (rank == 0) /* it may be gone before the other looks */
        (void)ta_group_exchange(group, data[0], own, 1, NULL, 0, -1, NULL);
    if (rank == 1) {
        ta_status status = ta_group_exchange(group, NULL, 0, -1, data[1], other, 0, NULL);
        RANK_EXPECT(status == TA_ERR_MISMATCH);
        RANK_EXPECT(strstr(ta_last_error(), "rank 0 sent") && strstr(ta_last_error(), "expected"));
    }
    return TA_OK;
}

static ta_status another_call(ta_group *group, void *context)
{
    int32_t value = 1;
    (void)context;
    ta_status status =
        ta_all_reduce(group, NULL, &value, &value, 1,
                      ta_group_rank(group) ? TA_ELEMENT_I32 : TA_ELEMENT_F32, TA_REDUCE_SUM, NULL);
    return rank_expect_error(TA_ERR_MISMATCH, status, "ta_all_reduce (sum of 1 i32)", "of 1 f32");
}

/* A large message that nobody takes: its memory is the caller's again when the call has failed. */
static ta_status message_not_taken(ta_group *group, void *context)
{
    size_t bytes = 3 << 20;
    char *data = malloc(bytes);
    ta_status status = TA_OK;
    (void)context;
    memset(data, 7, bytes);
    group->timeout_ms = TIMEOUT_MS;
    if (ta_group_rank(group) == 0)
        status = rank_expect_error(TA_ERR_TIMEOUT,
                                   ta_group_exchange(group, data, bytes, 1, NULL, 0, -1, NULL),
                                   "rank 1 did not arrive", "rank 0 waited");
    pthread_barrier_wait(in_turn);
    memset(data, 9, bytes);
    free(data);
    return status;
}

static void test_faults(void)
{
    static const socket_mode modes[] = {SOCKET_IN_CALLS, SOCKET_CANCELS, SOCKET_HOLDS};
    ta_group_config slow = config_of(LONG_WAIT_MS);
    meet_in_turn(4);
    for (int i = 0; i < SOCKET_MODES; ++i) {
        EXPECT_OK(socket_run_threads(4, modes[i], &slow, late_rank, NULL));
        EXPECT_OK(socket_run_threads(3, modes[i], &slow, leave_early, NULL));
        EXPECT_OK(socket_run_threads(4, modes[i], &slow, abort_rank, NULL));
        EXPECT_OK(socket_run_threads(4, modes[i], &slow, abort_in_a_call, NULL));
        EXPECT_OK(socket_run_threads(5, modes[i], &slow, abort_part, NULL));
        EXPECT_OK(socket_run_threads(3, modes[i], &slow, parts_at_once, NULL));
        EXPECT_OK(socket_run_threads(2, modes[i], &slow, another_call, NULL));
        EXPECT_OK(socket_run_threads(2, modes[i], &slow, lengths_of_heads, NULL));
        for (int which = 0; which < 4; ++which)
            EXPECT_OK(socket_run_threads(2, modes[i], &slow, another_size, &which));
    }
    /* The others take what comes by themselves, and sending ends. */
    EXPECT_OK(socket_run_processes(4, SOCKET_IN_CALLS, &slow, die, NULL));
    EXPECT_OK(socket_run_processes(4, SOCKET_IN_CALLS, &slow, late_rank, NULL));
    meet_in_turn(2);
    EXPECT_OK(socket_run_threads(2, SOCKET_IN_CALLS, &slow, message_not_taken, NULL));
}

/* ---- A rank that leaves, over a transport that closes nothing -------------------------------- */

typedef struct memory_scene {
    memory_transport shared;
    memory_end ends[MEMORY_RANKS];
    int sends; /* what rank 0 does that waits for the other one */
} memory_scene;

/* Rank 1 sends rank 0 a message and leaves. What it sent is still to be had; who waits for it
 * afterwards hears from its notice alone that it is gone. A message that rank 0 does not take is no
 * reason to send to a rank that takes none. */
static ta_status leave_over_memory(ta_group *threads, void *context)
{
    memory_scene *scene = context;
    int rank = ta_group_rank(threads);
    ta_group_config config = config_of(LONG_WAIT_MS);
    ta_transport calls = memory_transport_calls(&scene->shared, rank, &scene->ends[rank]);
    ta_status status = TA_OK;
    ta_group *group;
    int32_t value = 10 + rank;
    static const char large[2 * MEMORY_BYTES];
    TA_TRY(ta_group_create_custom(&calls, &config, &group));
    if (rank == 1)
        TA_TRY(ta_group_exchange(group, &value, sizeof value, 0, NULL, 0, -1, NULL));
    if (rank == 1)
        ta_group_destroy(group);
    TA_TRY(ta_group_barrier(threads, NULL));
    if (rank == 1)
        return TA_OK;
    group->timeout_ms = TIMEOUT_MS;
    if (rank == 0 && !scene->sends) {
        TA_TRY(ta_group_exchange(group, NULL, 0, -1, &value, sizeof value, 1, NULL));
        RANK_EXPECT(value == 11);
        status = ta_group_exchange(group, NULL, 0, -1, &value, sizeof value, 1, NULL);
    } else if (rank == 0) {
        status = ta_group_exchange(group, large, sizeof large, 1, NULL, 0, -1, NULL);
    }
    if (rank == 0)
        status = rank_expect_error(TA_ERR_ABORTED, status, "rank 1 destroyed its group",
                                   "while rank 0 waited for it");
    ta_group_destroy(group);
    return status;
}

static void test_a_rank_that_leaves(void)
{
    memory_scene *scene = malloc(sizeof *scene);
    for (scene->sends = 0; scene->sends < 2; ++scene->sends) {
        memory_transport_init(&scene->shared);
        EXPECT_OK(ta_group_run_threads(MEMORY_RANKS, NULL, leave_over_memory, scene));
        memory_transport_free(&scene->shared);
    }
    free(scene);
}

/* ---- A long message that stops in the middle ------------------------------------------------- */

static socket_transport *transports[3];
static socket_mesh mesh;

static void open_transports(int ranks, socket_mode mode)
{
    TEST_ASSERT_TRUE(socket_mesh_make(&mesh, ranks));
    for (int rank = 0; rank < ranks; ++rank)
        transports[rank] = socket_transport_open(&mesh, rank, mode);
}

/* When the call has failed nobody touches the caller's memory any more, on either side, although
 * the transport goes on afterwards: whoever does ends the program. */
static ta_status stopped_message(ta_group *threads, void *context)
{
    enum { BYTES = 3 << 20 };
    int rank = ta_group_rank(threads);
    ta_group_config config = config_of(LONG_WAIT_MS);
    ta_group *group;
    ta_transport calls = socket_transport_calls(transports[rank]);
    (void)context;
    void *data = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    RANK_EXPECT(data != MAP_FAILED);
    memset(data, 7, BYTES);
    TA_TRY(ta_group_create_custom(&calls, &config, &group));
    group->timeout_ms = TIMEOUT_MS;
    if (rank == 0)
        socket_transport_limit(transports[rank], BYTES / 3);
    ta_status status = rank == 0 ? ta_group_exchange(group, data, BYTES, 1, NULL, 0, -1, NULL)
                                 : ta_group_exchange(group, NULL, 0, -1, data, BYTES, 0, NULL);
    RANK_EXPECT(status == TA_ERR_TIMEOUT);
    RANK_EXPECT(mprotect(data, BYTES, PROT_NONE) == 0);
    TA_TRY(ta_group_barrier(threads, NULL));
    if (rank == 0)
        socket_transport_limit(transports[rank], 0);
    sleep_ms(100); /* in which the rest would move */
    RANK_EXPECT(ta_group_barrier(group, NULL) == TA_ERR_TIMEOUT);
    TA_TRY(ta_group_barrier(threads, NULL));
    ta_group_destroy(group);
    sleep_ms(50);
    socket_transport_close(transports[rank]);
    RANK_EXPECT(munmap(data, BYTES) == 0);
    return TA_OK;
}

static void test_a_message_that_stops(void)
{
    for (int mode = 0; mode < SOCKET_MODES; ++mode) {
        open_transports(2, (socket_mode)mode);
        EXPECT_OK(ta_group_run_threads(2, NULL, stopped_message, NULL));
    }
}

/* ---- A transport that fails, or that is wrong ------------------------------------------------ */

static ta_status transport_fails(ta_group *threads, void *context)
{
    int rank = ta_group_rank(threads);
    ta_group *group;
    (void)context;
    ta_transport calls = socket_transport_calls(transports[rank]);
    TA_TRY(ta_group_create_custom(&calls, NULL, &group));
    if (rank == 1)
        socket_transport_fail(transports[rank]);
    ta_status status = ta_group_barrier(group, NULL);
    if (rank == 1)
        TA_TRY(rank_expect_error(TA_ERR_SYSTEM, status, "transport of rank 1", "-8"));
    ta_group_destroy(group);
    socket_transport_close(transports[rank]);
    if (rank != 1) /* which can't say why: its streams are closed */
        RANK_EXPECT(status == TA_ERR_SYSTEM && strstr(ta_last_error(), "rank"));
    return TA_OK;
}

static void test_a_transport_that_fails(void)
{
    open_transports(3, SOCKET_IN_CALLS);
    EXPECT_OK(ta_group_run_threads(3, NULL, transport_fails, NULL));
}

static ta_status moves_too_much(void *context, ta_transfer *const *transfers, int count,
                                int timeout_ms)
{
    (void)context, (void)timeout_ms;
    for (int i = 0; i < count; ++i)
        transfers[i]->moved = transfers[i]->bytes + 1;
    return TA_OK;
}

static ta_status moves_nothing(void *context, ta_transfer *const *transfers, int count,
                               int timeout_ms)
{
    (void)context, (void)transfers, (void)count;
    sleep_ms(timeout_ms);
    return TA_OK;
}

#define SPOIL(name, change) SPOIL_FUNCTION(spoil_##name, ta_transport *t, change)
SPOIL(size, t->size = 3)
SPOIL(ranks, t->ranks = 0)
SPOIL(rank, t->rank = 2)
SPOIL(negative_rank, t->rank = -1)
SPOIL(node, t->node = -1)
SPOIL(holds_memory, t->holds_memory = 2)
SPOIL(progress, t->progress = NULL)

static void test_bad_input(void)
{
    static const struct {
        const char *named, *value;
        void (*spoil)(ta_transport *t);
    } wrong[] = {{"transport", "3", spoil_size},
                 {"transport.ranks is 0", NULL, spoil_ranks},
                 {"transport.rank is 2", NULL, spoil_rank},
                 {"transport.rank is -1", NULL, spoil_negative_rank},
                 {"transport.node is -1", NULL, spoil_node},
                 {"holds_memory is 2", NULL, spoil_holds_memory},
                 {"transport.progress", NULL, spoil_progress}};
    ta_transport right = TA_TRANSPORT_INIT, t;
    ta_group_config config = config_of(100);
    ta_group *group = NULL;
    right.ranks = 2;
    right.progress = moves_nothing;
    EXPECT_ERROR(TA_ERR_INVALID, ta_group_create_custom(NULL, NULL, &group), "transport is NULL",
                 NULL);
    EXPECT_ERROR(TA_ERR_INVALID, ta_group_create_custom(&right, NULL, NULL), "group is NULL", NULL);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; ++i) {
        t = right;
        wrong[i].spoil(&t);
        EXPECT_ERROR(TA_ERR_INVALID, ta_group_create_custom(&t, NULL, &group), wrong[i].named,
                     wrong[i].value);
    }
    config.timeout_ms = -1;
    EXPECT_ERROR(TA_ERR_INVALID, ta_group_create_custom(&right, &config, &group), "timeout_ms",
                 NULL);
    config.timeout_ms = 100;
    EXPECT_ERROR(TA_ERR_TIMEOUT, ta_group_create_custom(&right, &config, &group),
                 "rank 1 did not arrive", "100 ms");
    t = right;
    t.progress = moves_too_much;
    EXPECT_ERROR(TA_ERR_SYSTEM, ta_group_create_custom(&t, &config, &group), "rank 1 is lost",
                 NULL);
    TEST_ASSERT_NULL(group);
}

/* The node that a transport tells goes into a probed cluster. */
static ta_status probe_rank(ta_group *threads, void *context)
{
    int rank = ta_group_rank(threads);
    ta_group *group;
    ta_device *device;
    ta_cluster *cluster;
    char text[4096];
    (void)context;
    ta_transport calls = socket_transport_calls(transports[rank]);
    calls.node = rank == 1 ? 7 : 3;
    TA_TRY(ta_group_create_custom(&calls, NULL, &group));
    RANK_EXPECT(group->node == (rank == 1 ? 7 : 3));
    ta_group *part;
    TA_TRY(ta_group_split(group, 0, -rank, &part));
    RANK_EXPECT(part->node == group->node);
    ta_group_destroy(part);
    TA_TRY(ta_device_open("host", NULL, &device));
    TA_TRY(ta_cluster_probe(group, device, &cluster));
    TA_TRY(ta_cluster_text(cluster, text, sizeof text, NULL));
    RANK_EXPECT(strstr(text, "node_of_rank = 0 1 0\n"));
    ta_cluster_destroy(cluster);
    ta_device_close(device);
    ta_group_destroy(group);
    socket_transport_close(transports[rank]);
    return TA_OK;
}

static void test_nodes(void)
{
    open_transports(3, SOCKET_IN_CALLS);
    EXPECT_OK(ta_group_run_threads(3, NULL, probe_rank, NULL));
}

/* ---- Numbers of agreements ------------------------------------------------------------------- */

static ta_status agree_once(ta_group *group, int64_t *id)
{
    ta_agreement agreement = {.what = "tests", .failed = "failed in a test"};
    TA_TRY(ta_agree(group, &agreement, TA_OK));
    *id = agreement.id;
    return TA_OK;
}

/* The process of rank 0 has made plans before. A number that all took is nobody's again, in the
 * other processes too. */
static ta_status numbering_rank(ta_group *group, void *context)
{
    int64_t shared = 0, alone = 0;
    (void)context;
    for (int i = 0; i < 10 && ta_group_rank(group) == 0; ++i)
        TA_TRY(agree_once(NULL, &alone));
    TA_TRY(agree_once(group, &shared));
    RANK_EXPECT(shared > 10);
    TA_TRY(agree_once(NULL, &alone));
    RANK_EXPECT(alone > shared);
    return TA_OK;
}

static void test_numbers_of_processes(void)
{
    ta_group_config config = config_of(LONG_WAIT_MS);
    EXPECT_OK(socket_run_processes(3, SOCKET_IN_CALLS, &config, numbering_rank, NULL));
}

int main(int argc, char **argv)
{
    if (!options_read(argc, argv))
        return 2;
    UNITY_BEGIN();
    RUN_TEST(test_bad_input);
    RUN_TEST(test_nodes);
    RUN_TEST(test_numbers_of_processes);
    RUN_TEST(test_a_transport_that_fails);
    RUN_TEST(test_faults);
    RUN_TEST(test_a_rank_that_leaves);
    RUN_TEST(test_a_message_that_stops);
    RUN_TEST(test_conformance_of_processes);
    RUN_TEST(test_conformance_of_other_modes);
    RUN_TEST(test_conformance_of_threads);
    return UNITY_END() != 0;
}
