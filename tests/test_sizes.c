/* Structs that can grow (src/base/arguments.c): what a release handed out stays where it is, and
 * every function that takes such a struct works with programs of other versions, and reads and
 * writes no further than the size it is given. Each struct lies at the end of a page that has
 * nothing behind it. */
#include "base/arguments.h"

#include <sys/mman.h>
#include <unistd.h>

#include "lib/attention_plan.h"
#include "lib/expect.h"
#include "lib/layout.h"
#include "lib/plan_config.h"
#include "lib/small_step.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

#define POISON_BYTES (TA_STRUCT_MOST_BYTES + 8)

static char *poison; /* POISON_BYTES up to the end of a page */

/* What the functions below need beside the struct that is tried. */
static ta_device *device;
static ta_group *group;
static ta_cluster *cluster;
static small_step step;
static ta_plan *plan, *combines;
static ta_attention *attention;
static const int32_t lengths[] = {2};
static float numbers[8][16];

void setUp(void)
{
}

void tearDown(void)
{
}

/* ---- What was handed out ---- */

static const layout_size *size_of(const char *type)
{
    for (size_t i = 0; i < COUNT(layout_sizes); ++i)
        if (strcmp(layout_sizes[i].type, type) == 0)
            return &layout_sizes[i];
    return NULL;
}

/* A field that was added in the middle moves those after it; one at the end moves none. */
static void test_fields_stay(void)
{
    const char *type = "";
    size_t end = 0;
    for (size_t i = 0; i < COUNT(layout_fields); ++i) {
        const layout_field *f = &layout_fields[i];
        char text[100];
        snprintf(text, sizeof text, "%s.%s", f->type, f->name);
        TEST_ASSERT_EQUAL_size_t_MESSAGE(f->released_at, f->at, text);
        TEST_ASSERT_EQUAL_size_t_MESSAGE(f->released_bytes, f->bytes, text);
        if (strcmp(type, f->type) != 0)
            end = 0;
        /* A field in a gap would be read from programs that never set it. */
        TEST_ASSERT_EQUAL_size_t_MESSAGE(end, f->at, text);
        type = f->type;
        end = f->at + f->bytes;
    }
}

static void test_sizes_stay(void)
{
    for (size_t i = 0; i < TA_STRUCTS; ++i) {
        const ta_struct_size *s = &ta_struct_sizes[i];
        const layout_size *released = size_of(s->name);
        TEST_ASSERT_NOT_NULL_MESSAGE(released, s->name);
        TEST_ASSERT_EQUAL_size_t_MESSAGE(released->released_bytes, s->first_bytes, s->name);
        TEST_ASSERT_TRUE_MESSAGE(s->bytes >= s->first_bytes, s->name);
        TEST_ASSERT_TRUE_MESSAGE(s->bytes <= TA_STRUCT_MOST_BYTES / 2, s->name);
    }
    TEST_ASSERT_EQUAL_size_t(TA_STRUCTS + 6, COUNT(layout_sizes)); /* those without a size */
}

/* Arrays of them, and structs that hold them, are compiled into programs. */
static void test_structs_inside_others_never_grow(void)
{
    static const char *const names[] = {"ta_tensor", "ta_shard_map", "ta_scales",
                                        "ta_predicted_call"};
    for (size_t i = 0; i < COUNT(names); ++i) {
        const layout_size *s = size_of(names[i]);
        TEST_ASSERT_NOT_NULL_MESSAGE(s, names[i]);
        TEST_ASSERT_EQUAL_size_t_MESSAGE(s->released_bytes, s->bytes, names[i]);
    }
}

/* ---- A struct that has grown ---- */

typedef struct grown {
    size_t size;
    int32_t old, reserved;
    int64_t added[2];
} grown;

static const ta_struct_size grown_size = {"ta_grown", "TA_GROWN_INIT", offsetof(grown, added),
                                          sizeof(grown)};

/* The last `bytes` bytes before the end of the page; what is before them is poison. */
static void *at_page_end(size_t bytes)
{
    memset(poison, 0xa5, POISON_BYTES);
    return poison + (POISON_BYTES - bytes);
}

static void test_an_older_programs_config(void)
{
    size_t sizes[] = {grown_size.first_bytes, offsetof(grown, added[1])};
    for (size_t i = 0; i < COUNT(sizes); ++i) {
        grown given = {sizes[i], 7, 0, {8, 9}}, copy;
        void *old = at_page_end(sizes[i]);
        memcpy(old, &given, sizes[i]);
        memset(&copy, 0xa5, sizeof copy);
        EXPECT_OK(ta_struct_read(&grown_size, "config", old, &copy));
        TEST_ASSERT_EQUAL_size_t(sizeof(grown), copy.size);
        TEST_ASSERT_EQUAL_INT(7, copy.old);
        TEST_ASSERT_EQUAL_INT64(i > 0 ? 8 : 0, copy.added[0]);
        TEST_ASSERT_EQUAL_INT64(0, copy.added[1]);
    }
}

static void test_an_older_programs_result(void)
{
    grown result = {0, 7, 0, {8, 9}}, got;
    char *old = at_page_end(grown_size.first_bytes);
    memcpy(old, &grown_size.first_bytes, sizeof(size_t));
    EXPECT_OK(ta_struct_write(&grown_size, "stats", &result, old));
    memcpy(&got, old, grown_size.first_bytes);
    TEST_ASSERT_EQUAL_size_t(grown_size.first_bytes, got.size);
    TEST_ASSERT_EQUAL_INT(7, got.old);
    TEST_ASSERT_EQUAL_HEX8(0xa5, (unsigned char)old[-1]);
}

/* ---- Every function with every size ---- */

static ta_status open_device(void *config)
{
    ta_device *opened;
    TA_TRY(ta_device_open("host", config, &opened));
    ta_device_close(opened);
    return TA_OK;
}

static ta_status create_threads(void *config)
{
    ta_group *made;
    TA_TRY(ta_group_create_threads(1, config, &made));
    ta_group_destroy(made);
    return TA_OK;
}

static ta_status do_nothing(ta_group *of_rank, void *context)
{
    (void)of_rank, (void)context;
    return TA_OK;
}

static ta_status run_threads(void *config)
{
    return ta_group_run_threads(1, config, do_nothing, NULL);
}

static ta_status create_mpi(void *config)
{
    ta_group *made;
    return ta_group_create_mpi(&made, config, &made);
}

static ta_status create_ccl(void *config)
{
    ta_ccl_config ccl = TA_CCL_CONFIG_INIT;
    ta_group *made;
    ccl.bootstrap = group;
    return ta_group_create_ccl(device, &ccl, config, &made);
}

/* One rank has nobody to send to. */
static ta_status move_nothing(void *context, ta_transfer *const *transfers, int count,
                              int timeout_ms)
{
    (void)context, (void)transfers, (void)count, (void)timeout_ms;
    return TA_OK;
}

static ta_transport one_rank(void)
{
    ta_transport transport = TA_TRANSPORT_INIT;
    transport.ranks = 1;
    transport.progress = move_nothing;
    return transport;
}

static ta_status create_custom(void *transport)
{
    ta_group *made;
    TA_TRY(ta_group_create_custom(transport, NULL, &made));
    ta_group_destroy(made);
    return TA_OK;
}

static ta_status create_custom_with(void *config)
{
    ta_transport transport = one_rank();
    ta_group *made;
    TA_TRY(ta_group_create_custom(&transport, config, &made));
    ta_group_destroy(made);
    return TA_OK;
}

/* An empty sequence. */
static int32_t no_tokens;

static ta_reshard_config reshard_config(void)
{
    ta_reshard_config config = TA_RESHARD_CONFIG_INIT;
    config.batch = config.kv_heads = 1;
    config.k_dim = 8;
    config.kv_dtype = TA_F32;
    config.lengths = &no_tokens;
    return config;
}

static ta_status reshard(void *config)
{
    return ta_reshard(NULL, NULL, config, &step.kv, &step.kv, NULL);
}

static ta_status reshard_from(void *kv)
{
    ta_reshard_config config = reshard_config();
    return ta_reshard(NULL, NULL, &config, kv, &step.kv, NULL);
}

static ta_status reshard_to(void *kv)
{
    ta_reshard_config config = reshard_config();
    return ta_reshard(NULL, NULL, &config, &step.kv, kv, NULL);
}

static ta_status create_ccl_from(void *ccl)
{
    ta_group *made;
    return ta_group_create_ccl(device, ccl, NULL, &made);
}

static ta_status group_stats(void *stats)
{
    return ta_group_get_stats(group, stats);
}

static ta_status plan_workspace(void *config)
{
    size_t bytes;
    return ta_plan_workspace(NULL, device, config, &bytes);
}

static ta_status plan_create(void *config)
{
    ta_plan *made;
    TA_TRY(ta_plan_create(NULL, device, config, &made));
    ta_plan_destroy(made);
    return TA_OK;
}

static ta_status plan_stats(void *stats)
{
    return ta_plan_get_stats(plan, stats);
}

static ta_status decode(void *kv)
{
    return ta_decode(plan, &step.q, kv, &step.out, step.lse, NULL, NULL);
}

static ta_status decode_call(void *call)
{
    return ta_decode(plan, &step.q, &step.kv, &step.out, step.lse, call, NULL);
}

static ta_append_input append_input(void)
{
    ta_append_input input = TA_APPEND_INPUT_INIT;
    input.k.data = step.query; /* any numbers will do */
    input.v.data = step.query;
    return input;
}

static ta_status append(void *input)
{
    return ta_append(plan, input, &step.kv, NULL, NULL);
}

static ta_status append_kv(void *kv)
{
    ta_append_input input = append_input();
    return ta_append(plan, &input, kv, NULL, NULL);
}

static ta_status append_call(void *call)
{
    ta_append_input input = append_input();
    return ta_append(plan, &input, &step.kv, call, NULL);
}

static ta_status combine_call(void *call)
{
    return ta_combine(combines, &step.out, step.lse, TA_LSE_E, &step.out, step.lse, call, NULL);
}

static ta_status predict_config(void *config)
{
    ta_prediction prediction = TA_PREDICTION_INIT;
    return ta_predict(cluster, config, 1, 0, &prediction);
}

static ta_status predict(void *prediction)
{
    return ta_predict(cluster, &step.config, 1, 0, prediction);
}

static ta_attention_input attention_input(void)
{
    ta_attention_input input = TA_ATTENTION_INPUT_INIT;
    input.sequences = 1;
    input.lengths = lengths;
    input.q.data = numbers[0];
    input.k.data = numbers[1];
    input.v.data = numbers[2];
    return input;
}

static ta_attention_gradient attention_gradient(void)
{
    ta_attention_gradient gradient = TA_ATTENTION_GRADIENT_INIT;
    gradient.out.data = numbers[3];
    gradient.dout.data = numbers[3];
    gradient.lse = numbers[4];
    gradient.dq.data = numbers[5];
    gradient.dk.data = numbers[6];
    gradient.dv.data = numbers[7];
    return gradient;
}

static ta_status attention_create(void *config)
{
    ta_attention *made;
    TA_TRY(ta_attention_create(NULL, device, config, &made));
    ta_attention_destroy(made);
    return TA_OK;
}

static ta_status attention_workspace(void *config)
{
    size_t bytes;
    return ta_attention_workspace(NULL, device, config, &bytes);
}

static ta_status attention_stats(void *stats)
{
    return ta_attention_get_stats(attention, stats);
}

static ta_status attention_forward(void *input)
{
    ta_tensor out = {numbers[3], 0, 0, 0};
    return ta_attention_forward(attention, input, &out, numbers[4], NULL);
}

static ta_status attention_backward(void *input)
{
    ta_attention_gradient gradient = attention_gradient();
    return ta_attention_backward(attention, input, &gradient, NULL);
}

static ta_status attention_backward_into(void *gradient)
{
    ta_attention_input input = attention_input();
    return ta_attention_backward(attention, &input, gradient, NULL);
}

static ta_status attention_predict_config(void *config)
{
    ta_attention_prediction prediction = TA_ATTENTION_PREDICTION_INIT;
    return ta_attention_predict(cluster, config, 1, 0, &prediction);
}

static ta_status attention_predict(void *prediction)
{
    ta_attention_config config = attention_small_config(TA_F32, 8, 2);
    return ta_attention_predict(cluster, &config, 1, 0, prediction);
}

typedef struct
try {
    const char *argument;
    const ta_struct_size *type;
    const void *good; /* what the function is content with; NULL: it writes the struct */
    ta_status (*call)(void *given);
    int needs_more; /* with the right size the call fails for another reason: there is no module */
}
try;

static void fill(const try *t, void *given, size_t size, size_t room)
{
    memset(given, t->good ? 0 : 0xa5, room);
    if (t->good)
        memcpy(given, t->good, room < t->type->bytes ? room : t->type->bytes);
    memcpy(given, &size, sizeof size);
}

static void expect_accepted(const try *t, size_t size)
{
    char text[200];
    char *given = at_page_end(size);
    fill(t, given, size, size);
    ta_status status = t->call(given);
    snprintf(text, sizeof text, "%s %s.size %zu: %.120s", t->type->name, t->argument, size,
             status == TA_OK ? "" : ta_last_error());
    if (t->needs_more)
        TEST_ASSERT_TRUE_MESSAGE(status != TA_OK && !strstr(ta_last_error(), "size is"), text);
    else
        TEST_ASSERT_EQUAL_INT_MESSAGE(TA_OK, status, text);
    TEST_ASSERT_EQUAL_MEMORY_MESSAGE(&size, given, sizeof size, text);
    if (!t->good && size > t->type->bytes)
        TEST_ASSERT_EACH_EQUAL_HEX8_MESSAGE(0, given + t->type->bytes, size - t->type->bytes, text);
    TEST_ASSERT_EQUAL_HEX8_MESSAGE(0xa5, (unsigned char)given[-1], text);
}

/* `room` bytes are there, at least the size itself. */
static void expect_refused(const try *t, size_t size, size_t room, size_t spoiled)
{
    char text[100], before[TA_STRUCT_MOST_BYTES];
    char *given = at_page_end(room);
    fill(t, given, size, room);
    if (spoiled)
        given[spoiled] = 1;
    memcpy(before, given, room);
    snprintf(text, sizeof text, "%s.size is %zu", t->argument, size);
    EXPECT_ERROR(TA_ERR_INVALID, t->call(given), text, t->type->name);
    TEST_ASSERT_EQUAL_MEMORY_MESSAGE(before, given, room, text);
}

static void try_sizes(const try *t)
{
    size_t first = t->type->first_bytes, bytes = t->type->bytes;
    expect_refused(t, 0, sizeof(size_t), 0);
    expect_refused(t, first - 8, first - 8, 0);
    expect_refused(t, TA_STRUCT_MOST_BYTES + 8, TA_STRUCT_MOST_BYTES, 0);
    expect_refused(t, SIZE_MAX, TA_STRUCT_MOST_BYTES, 0);
    expect_accepted(t, first);
    expect_accepted(t, bytes);
    expect_accepted(t, bytes + 24);
    expect_accepted(t, TA_STRUCT_MOST_BYTES);
    if (!t->good)
        return;
    expect_refused(t, bytes + 24, bytes + 24, bytes);
    expect_refused(t, bytes + 24, bytes + 24, bytes + 23);
    expect_refused(t, TA_STRUCT_MOST_BYTES, TA_STRUCT_MOST_BYTES, TA_STRUCT_MOST_BYTES - 1);
}

static void test_devices_and_groups(void)
{
    ta_device_config of_device = TA_DEVICE_CONFIG_INIT;
    ta_group_config of_group = TA_GROUP_CONFIG_INIT;
    ta_ccl_config ccl = TA_CCL_CONFIG_INIT;
    const ta_transport transport = one_rank();
    of_device.threads = 1;
    ccl.bootstrap = group;
    const try tries[] = {
        {"config", TA_STRUCT(ta_device_config), &of_device, open_device, 0},
        {"config", TA_STRUCT(ta_group_config), &of_group, create_threads, 0},
        {"config", TA_STRUCT(ta_group_config), &of_group, run_threads, 0},
        {"config", TA_STRUCT(ta_group_config), &of_group, create_mpi, 1},
        {"config", TA_STRUCT(ta_group_config), &of_group, create_ccl, 1},
        {"ccl", TA_STRUCT(ta_ccl_config), &ccl, create_ccl_from, 1},
        {"transport", TA_STRUCT(ta_transport), &transport, create_custom, 0},
        {"config", TA_STRUCT(ta_group_config), &of_group, create_custom_with, 0},
        {"stats", TA_STRUCT(ta_group_stats), NULL, group_stats, 0},
    };
    for (size_t i = 0; i < COUNT(tries); ++i)
        try_sizes(&tries[i]);
}

static void test_decode(void)
{
    const ta_call call = TA_CALL_INIT;
    const ta_reshard_config of_reshard = reshard_config();
    const try tries[] = {
        {"config", TA_STRUCT(ta_reshard_config), &of_reshard, reshard, 0},
        {"from", TA_STRUCT(ta_kv), &step.kv, reshard_from, 0},
        {"to", TA_STRUCT(ta_kv), &step.kv, reshard_to, 0},
        {"config", TA_STRUCT(ta_plan_config), &step.config, plan_workspace, 0},
        {"config", TA_STRUCT(ta_plan_config), &step.config, plan_create, 0},
        {"config", TA_STRUCT(ta_plan_config), &step.config, predict_config, 0},
        {"prediction", TA_STRUCT(ta_prediction), NULL, predict, 0},
        {"kv", TA_STRUCT(ta_kv), &step.kv, decode, 0},
        {"call", TA_STRUCT(ta_call), &call, decode_call, 0},
        {"stats", TA_STRUCT(ta_plan_stats), NULL, plan_stats, 0},
    };
    for (size_t i = 0; i < COUNT(tries); ++i)
        try_sizes(&tries[i]);
    TEST_ASSERT_TRUE(small_step_right(&step));
}

/* Writes to the cache and the output, so it comes after what looks at them. */
static void test_append_and_combine(void)
{
    const ta_call call = TA_CALL_INIT;
    const ta_append_input input = append_input();
    const try tries[] = {
        {"input", TA_STRUCT(ta_append_input), &input, append, 0},
        {"kv", TA_STRUCT(ta_kv), &step.kv, append_kv, 0},
        {"call", TA_STRUCT(ta_call), &call, append_call, 0},
        {"call", TA_STRUCT(ta_call), &call, combine_call, 0},
    };
    for (size_t i = 0; i < COUNT(tries); ++i)
        try_sizes(&tries[i]);
}

static void test_attention(void)
{
    ta_attention_config config = attention_small_config(TA_F32, 8, 2);
    ta_attention_input input = attention_input();
    ta_attention_gradient gradient = attention_gradient();
    const try tries[] = {
        {"config", TA_STRUCT(ta_attention_config), &config, attention_create, 0},
        {"config", TA_STRUCT(ta_attention_config), &config, attention_workspace, 0},
        {"stats", TA_STRUCT(ta_attention_stats), NULL, attention_stats, 0},
        {"config", TA_STRUCT(ta_attention_config), &config, attention_predict_config, 0},
        {"prediction", TA_STRUCT(ta_attention_prediction), NULL, attention_predict, 0},
        {"input", TA_STRUCT(ta_attention_input), &input, attention_forward, 0},
        {"input", TA_STRUCT(ta_attention_input), &input, attention_backward, 0},
        {"gradient", TA_STRUCT(ta_attention_gradient), &gradient, attention_backward_into, 0},
    };
    for (size_t i = 0; i < COUNT(tries); ++i)
        try_sizes(&tries[i]);
}

/* Fields that keep a gap named, and structs that are not there. */
static void test_reserved_and_null(void)
{
    ta_device_config of_device = TA_DEVICE_CONFIG_INIT;
    ta_group_config of_group = TA_GROUP_CONFIG_INIT;
    ta_shard_map map = TA_SHARD_MAP_INIT;
    ta_attention_config config = attention_small_config(TA_F32, 8, 2);
    ta_attention_input input = attention_input();
    int32_t count;
    of_device.reserved = of_group.reserved = 3;
    EXPECT_ERROR(TA_ERR_INVALID, open_device(&of_device), "config.reserved is 3", "0");
    EXPECT_ERROR(TA_ERR_INVALID, create_threads(&of_group), "config.reserved is 3", "0");
    input.reserved = 3;
    EXPECT_ERROR(TA_ERR_INVALID, attention_forward(&input), "input.reserved is 3", "0");
    map.reserved = config.map.reserved = 3;
    map.ranks = 1;
    EXPECT_ERROR(TA_ERR_INVALID, ta_shard_count(&map, 0, 1, &count), "map.reserved is 3", "0");
    EXPECT_ERROR(TA_ERR_INVALID, attention_create(&config), "config.map.reserved is 3", "0");
    EXPECT_ERROR(TA_ERR_INVALID, decode(NULL), "kv is NULL", "ta_kv");
    EXPECT_ERROR(TA_ERR_INVALID, plan_stats(NULL), "stats is NULL", "ta_plan_stats");
}

/* Pages that can be used before one that can't. */
static void map_pages(void)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t bytes = (POISON_BYTES / page + 2) * page;
    char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    TEST_ASSERT_TRUE(memory != MAP_FAILED);
    poison = memory + bytes - page - POISON_BYTES;
    TEST_ASSERT_EQUAL_INT(0, mprotect(poison + POISON_BYTES, page, PROT_NONE));
}

static void open_all(void)
{
    ta_device_config one_thread = TA_DEVICE_CONFIG_INIT;
    ta_attention_config config = attention_small_config(TA_F32, 8, 2);
    ta_plan_config combine = combine_config(SMALL_BATCH, SMALL_HEADS, SMALL_V_DIM);
    one_thread.threads = 1;
    map_pages();
    small_step_init(&step, 0, 1);
    EXPECT_OK(ta_device_open("host", &one_thread, &device));
    EXPECT_OK(ta_group_create_threads(1, NULL, &group));
    EXPECT_OK(ta_cluster_create("h100:1x1", &cluster));
    EXPECT_OK(ta_plan_create(NULL, device, &step.config, &plan));
    combine.query_tokens = SMALL_QUERY_TOKENS;
    EXPECT_OK(ta_plan_create(NULL, device, &combine, &combines));
    EXPECT_OK(ta_attention_create(NULL, device, &config, &attention));
}

static void close_all(void)
{
    ta_attention_destroy(attention);
    ta_plan_destroy(combines);
    ta_plan_destroy(plan);
    ta_cluster_destroy(cluster);
    ta_group_destroy(group);
    ta_device_close(device);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(open_all);
    if (sizeof(void *) == 8) {
        RUN_TEST(test_fields_stay);
        RUN_TEST(test_sizes_stay);
        RUN_TEST(test_structs_inside_others_never_grow);
    }
    RUN_TEST(test_an_older_programs_config);
    RUN_TEST(test_an_older_programs_result);
    RUN_TEST(test_devices_and_groups);
    RUN_TEST(test_decode);
    RUN_TEST(test_append_and_combine);
    RUN_TEST(test_attention);
    RUN_TEST(test_reserved_and_null);
    RUN_TEST(close_all);
    return UNITY_END() != 0;
}
