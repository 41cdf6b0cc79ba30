/* The kernels of backward over full sequences (hip/attention/backward*.hip) launched directly,
 * against the gradients in double: both wave widths, three orders of the threads, every element
 * type, the matrix cores and FMA. The bound is that of docs/numerics.md with lse and delta exact,
 * for here they are the kernels' arguments. */
#include "simt_test.h"

#include <cmath>
#include <cstring>
#include <string>

#include "attention/attention.h"

extern "C" {
#include "../lib/bound.h"
#include "../lib/number.h"
#include "../lib/random.h"
}

void setUp(void)
{
    simt_reset();
}

void tearDown(void)
{
    simt_reset();
}

struct test_case {
    const char *name;
    ta_dtype dtype, dq_dtype, kv_dtype;
    int query_heads, kv_heads, k_dim, v_dim, queries, keys;
    int window;    /* keys before its own that a query sees; 0: all */
    int late;      /* queries at the start that see nothing */
    double spread; /* of the scores */
    double dout;   /* size of its elements */
    float softcap;
    int matrix;  /* 0: FMA in any case */
    int aligned; /* 0: tensors begin one element late, and have odd strides */
};

static const test_case cases[] = {
    {"f16", TA_F16, TA_F32, TA_F32, 4, 2, 24, 40, 21, 70, 0, 0, 1, 1, 0, 1, 1},
    {"bf16", TA_BF16, TA_F32, TA_F32, 3, 1, 64, 64, 40, 40, 0, 0, 1, 1, 0, 1, 1},
    {"f32", TA_F32, TA_F32, TA_F32, 4, 2, 40, 24, 40, 90, 0, 0, 1, 1, 0, 1, 1},
    {"f16, capped", TA_F16, TA_F16, TA_F32, 2, 2, 32, 16, 40, 70, 9, 3, 2, 1, 3.0f, 1, 1},
    {"bf16, window", TA_BF16, TA_F32, TA_BF16, 2, 1, 16, 8, 70, 130, 20, 5, 2, 1, 0, 1, 1},
    {"f32, capped", TA_F32, TA_F32, TA_F32, 2, 1, 8, 16, 70, 70, 20, 3, 2, 1, 3.0f, 1, 1},
    {"f16, odd addresses", TA_F16, TA_F16, TA_F16, 2, 1, 24, 8, 20, 33, 0, 0, 1, 1, 0, 1, 0},
    {"f32, odd addresses", TA_F32, TA_F32, TA_F32, 2, 1, 8, 24, 20, 33, 0, 0, 1, 1, 0, 1, 0},
    {"bf16, largest heads", TA_BF16, TA_F32, TA_F32, 1, 1, 256, 256, 18, 40, 0, 0, 1, 1, 0, 1, 1},
    {"f32, largest heads", TA_F32, TA_F32, TA_F32, 1, 1, 256, 256, 18, 40, 0, 0, 1, 1, 0, 1, 1},
    {"f16 by FMA", TA_F16, TA_F16, TA_F32, 2, 1, 24, 40, 30, 50, 0, 2, 1, 1, 0, 0, 1},
    {"bf16 by FMA, odd", TA_BF16, TA_F32, TA_BF16, 2, 1, 24, 8, 30, 50, 0, 2, 1, 1, 0, 0, 0},
    {"f16, far keys", TA_F16, TA_F32, TA_F32, 2, 1, 64, 32, 33, 70, 0, 0, 30, 1, 0, 1, 1},
    {"f16, tiny gradients", TA_F16, TA_F32, TA_F32, 2, 1, 64, 32, 33, 70, 0, 0, 3, 1e-6, 0, 1, 1},
    {"f16, large gradients", TA_F16, TA_F32, TA_F32, 2, 1, 32, 64, 33, 70, 0, 0, 3, 2e4, 0, 1, 1},
};

/* A tensor [row][head][dim] in device memory: NaN wherever nobody may look. */
struct test_tensor {
    ta_dtype dtype;
    int rows, heads, dim, odd;
    std::vector<unsigned char> bytes;
    unsigned char *device = nullptr;

    test_tensor(ta_dtype dtype_, int rows_, int heads_, int dim_, bool aligned)
        : dtype(dtype_), rows(rows_), heads(heads_), dim(dim_), odd(aligned ? 0 : 1)
    {
        bytes.resize(static_cast<size_t>(count()) * number_bytes(dtype));
        number_poison(dtype, bytes.data(), count());
        CHECK_HIP(hipMalloc(&device, bytes.size()));
    }
    ~test_tensor()
    {
        (void)hipFree(device);
    }
    test_tensor(const test_tensor &) = delete;
    test_tensor &operator=(const test_tensor &) = delete;

    int head_stride() const
    {
        return dim + odd;
    }
    int token_stride() const
    {
        return heads * head_stride() + 8 + odd * 2;
    }
    int count() const
    {
        return rows * token_stride() + odd;
    }
    int at(int row, int head, int d) const
    {
        return odd + row * token_stride() + head * head_stride() + d;
    }
    double get(int row, int head, int d) const
    {
        return number_decode(dtype, bytes.data(), at(row, head, d));
    }
    void set(int row, int head, int d, double value)
    {
        number_encode(dtype, bytes.data(), at(row, head, d), value);
    }
    void fill(const std::vector<int32_t> &which, double size, random_source *random)
    {
        for (int32_t row : which)
            for (int i = 0; i < heads * dim; i++)
                set(row, i / dim, i % dim, size * random_normal(random));
    }
    ta_tensor upload() const
    {
        CHECK_HIP(hipMemcpy(device, bytes.data(), bytes.size(), hipMemcpyHostToDevice));
        return {device + static_cast<size_t>(odd) * number_bytes(dtype), 0, token_stride(),
                head_stride()};
    }
    void download()
    {
        CHECK_HIP(hipMemcpy(bytes.data(), device, bytes.size(), hipMemcpyDeviceToHost));
    }
};

/* A gradient as it should be. */
struct total {
    double sum = 0, sum_abs = 0, sum_square = 0, lost = 0;
    int terms = 0;
    bound_spread error = {0, 0};

    /* A term weight · x, with the error of the weight, and the weight but for p. */
    void add(double weight, bound_spread weight_error, double without_p, double x)
    {
        double value = weight * x;
        sum += value;
        sum_abs += fabs(value);
        sum_square += value * value;
        lost += fabs(without_p * x);
        terms++;
        error.most += weight_error.most * fabs(x);
        error.square += weight_error.square * x * x;
    }
    double bound(ta_dtype dtype) const
    {
        bound_spread e = error;
        if (terms == 0)
            return 0;
        bound_add_summation(&e, terms, 64, sum, sum_abs, sum_square);
        double b = 0x1p-24 * (bound_settle(&e) + 3 * fabs(sum)) + 0x1p-126 * (1 + lost);
        return dtype == TA_F32 ? b : b + number_half_ulp(dtype, fabs(sum) + b);
    }
};

static std::vector<int32_t> shuffled(int count, int of, random_source *random)
{
    std::vector<int32_t> rows(static_cast<size_t>(of));
    for (int i = 0; i < of; i++)
        rows[static_cast<size_t>(i)] = i;
    for (int i = of - 1; i > 0; i--)
        std::swap(rows[static_cast<size_t>(i)],
                  rows[static_cast<size_t>(random_int(random, 0, i))]);
    rows.resize(static_cast<size_t>(count));
    return rows;
}

/* A whole case: inputs, what the kernels wrote, and what is right. */
struct test_run {
    const test_case &c;
    random_source random;
    std::vector<int32_t> query_rows, key_rows;
    std::vector<ta_visible> visible;
    test_tensor q, k, v, dout, dq, dk, dv;
    std::vector<float> lse, delta;                /* [row][head] */
    std::vector<total> want_dq, want_dk, want_dv; /* [query or key][head][dim] */
    double scale, worst = 0;

    explicit test_run(const test_case &c_)
        : c(c_), random(random_from(static_cast<uint64_t>(&c_ - cases) + 77)),
          query_rows(shuffled(c.queries, c.queries + 3, &random)),
          key_rows(shuffled(c.keys, c.keys + 2, &random)),
          q(c.dtype, c.queries + 3, c.query_heads, c.k_dim, c.aligned),
          k(c.dtype, c.keys + 2, c.kv_heads, c.k_dim, c.aligned),
          v(c.dtype, c.keys + 2, c.kv_heads, c.v_dim, c.aligned),
          dout(c.dtype, c.queries + 3, c.query_heads, c.v_dim, c.aligned),
          dq(c.dq_dtype, c.queries + 3, c.query_heads, c.k_dim, c.aligned),
          dk(c.kv_dtype, c.keys + 2, c.kv_heads, c.k_dim, c.aligned),
          dv(c.kv_dtype, c.keys + 2, c.kv_heads, c.v_dim, c.aligned),
          lse(static_cast<size_t>(q.rows * c.query_heads), NAN), delta(lse),
          scale(static_cast<float>(c.spread / sqrt(c.k_dim)))
    {
        q.fill(query_rows, 1, &random);
        k.fill(key_rows, 1, &random);
        v.fill(key_rows, 1, &random);
        dout.fill(query_rows, c.dout, &random);
        for (int i = 0; i < c.queries; i++) {
            int32_t end = i < c.late ? 0 : (i + 1) * c.keys / c.queries;
            visible.push_back({c.window && end > c.window ? end - c.window : 0, end});
        }
    }

    int kv_head(int head) const
    {
        return head / (c.query_heads / c.kv_heads);
    }
    size_t at(int query, int head) const
    {
        return static_cast<size_t>(query_rows[static_cast<size_t>(query)] * c.query_heads + head);
    }

    static double dot(const test_tensor &a, int a_row, int a_head, const test_tensor &b, int b_row,
                      int b_head, double factor, bound_spread *error)
    {
        double sum = 0, sum_abs = 0, sum_square = 0;
        for (int d = 0; d < a.dim; d++) {
            double t = factor * a.get(a_row, a_head, d) * b.get(b_row, b_head, d);
            sum += t;
            sum_abs += fabs(t);
            sum_square += t * t;
        }
        bound_add_summation(error, a.dim, a.dim, sum, sum_abs, sum_square);
        return sum;
    }

    struct pair {
        double score, slope, product;
        bound_spread score_error, product_error, slope_error;
    };

    pair pair_of(int query, int head, int key) const
    {
        int row = query_rows[static_cast<size_t>(query)], to = key_rows[static_cast<size_t>(key)];
        pair x = {0, 1, 0, {0, 0}, {0, 0}, {0, 0}};
        x.score = dot(q, row, head, k, to, kv_head(head), scale, &x.score_error);
        bound_add_source(&x.score_error, 3 * x.score);
        if (c.softcap > 0) {
            double cap = static_cast<double>(c.softcap), t = tanh(x.score / cap);
            x.slope = 1 - t * t;
            x.score_error.most *= x.slope;
            x.score_error.square *= x.slope * x.slope;
            x.score = cap * t;
            bound_add_source(&x.score_error, 6 * x.score);
            x.slope_error.most = x.score_error.most * 2 * fabs(t) / cap;
            x.slope_error.square = x.score_error.square * 4 * t * t / cap / cap;
            bound_add_source(&x.slope_error, 8 * t * t + 2);
        }
        x.product = dot(dout, row, head, v, to, kv_head(head), 1, &x.product_error);
        return x;
    }

    /* lse and delta of a row, over its keys and as much again that others hold. */
    void finish_row(int query, int head)
    {
        ta_visible sees = visible[static_cast<size_t>(query)];
        double most = -INFINITY, l = 0, sum = 0;
        for (int32_t j = sees.first; j < sees.end; j++)
            most = fmax(most, pair_of(query, head, j).score);
        for (int32_t j = sees.first; j < sees.end; j++) {
            pair x = pair_of(query, head, j);
            l += exp(x.score - most);
            sum += exp(x.score - most) * x.product;
        }
        lse[at(query, head)] = static_cast<float>(most + log(2 * l));
        delta[at(query, head)] = l > 0 ? static_cast<float>(sum / l) : 0.0f;
    }

    static void add_spread(bound_spread *into, bound_spread from, double factor)
    {
        into->most += from.most * fabs(factor);
        into->square += from.square * factor * factor;
    }

    void expect_pair(int query, int head, int key)
    {
        int row = query_rows[static_cast<size_t>(query)], to = key_rows[static_cast<size_t>(key)];
        pair x = pair_of(query, head, key);
        double rowlse = static_cast<double>(lse[at(query, head)]);
        double difference = x.product - static_cast<double>(delta[at(query, head)]);
        double p = exp(x.score - rowlse), ds = p * x.slope * difference;
        bound_spread relative = x.score_error, p_error = {0, 0}, ds_error = {0, 0};
        bound_add_source(&relative, x.score - rowlse);
        bound_add_source(&relative, 2 * rowlse);
        bound_add_source(&relative, 4);
        add_spread(&p_error, relative, p);
        add_spread(&ds_error, relative, ds);
        add_spread(&ds_error, x.product_error, p * x.slope);
        add_spread(&ds_error, x.slope_error, p * difference);
        bound_add_source(&ds_error, ds);     /* the difference to delta, */
        bound_add_source(&ds_error, 3 * ds); /* and the products */
        int kv = kv_head(head);
        for (int d = 0; d < c.k_dim; d++) {
            size_t of_q = static_cast<size_t>((query * c.query_heads + head) * c.k_dim + d);
            size_t of_k = static_cast<size_t>((key * c.kv_heads + kv) * c.k_dim + d);
            want_dq[of_q].add(ds, ds_error, difference, scale * k.get(to, kv, d));
            want_dk[of_k].add(ds, ds_error, difference, scale * q.get(row, head, d));
        }
        for (int d = 0; d < c.v_dim; d++)
            want_dv[static_cast<size_t>((key * c.kv_heads + kv) * c.v_dim + d)].add(
                p, p_error, 1, dout.get(row, head, d));
    }

    void expect()
    {
        want_dq.assign(static_cast<size_t>(c.queries * c.query_heads * c.k_dim), total());
        want_dk.assign(static_cast<size_t>(c.keys * c.kv_heads * c.k_dim), total());
        want_dv.assign(static_cast<size_t>(c.keys * c.kv_heads * c.v_dim), total());
        for (int i = 0; i < c.queries * c.query_heads; i++) {
            int query = i / c.query_heads, head = i % c.query_heads;
            finish_row(query, head);
            ta_visible sees = visible[static_cast<size_t>(query)];
            for (int32_t key = sees.first; key < sees.end; key++)
                expect_pair(query, head, key);
        }
    }

    void launch()
    {
        device_array<int32_t> on_query_rows(query_rows), on_key_rows(key_rows);
        device_array<ta_visible> on_visible(visible);
        device_array<float> on_lse(lse), on_delta(delta);
        for (test_tensor *t : {&dq, &dk, &dv})
            number_poison(t->dtype, t->bytes.data(), t->count());
        ta_attention_backward_params p;
        memset(&p, 0, sizeof p);
        ta_attention_work &w = p.common.work;
        w.query_heads = c.query_heads;
        w.kv_heads = c.kv_heads;
        w.k_dim = c.k_dim;
        w.v_dim = c.v_dim;
        w.dtype = c.dtype;
        w.scale = static_cast<float>(scale);
        w.softcap = c.softcap;
        w.queries = c.queries;
        w.keys = c.keys;
        w.q = q.upload();
        w.k = k.upload();
        w.v = v.upload();
        w.query_rows = on_query_rows.data;
        w.key_rows = on_key_rows.data;
        w.visible = on_visible.data;
        double log2e = 1.44269504088896340736;
        p.common.rule.factor = static_cast<float>(
            c.softcap > 0 ? scale / static_cast<double>(c.softcap) : scale * log2e);
        p.common.rule.cap = static_cast<float>(static_cast<double>(c.softcap) * log2e);
        p.common.aligned = c.aligned;
        p.gradient = {dout.upload(), on_lse.data, on_delta.data, c.dq_dtype,
                      c.kv_dtype,    dq.upload(), dk.upload(),   dv.upload()};
        ta_gpu_limits limits = {16, device_wave(), c.matrix, 65536, 131072, 0};
        CHECK_HIP(static_cast<hipError_t>(ta_prepare_attention_backward(limits.wave, 65536).error));
        TEST_ASSERT_EQUAL_INT(0, ta_gpu_backward_bytes(&limits, &w));
        for (int i = 0; i < ta_attention_backward_steps(&limits, &p); i++)
            CHECK_HIP(static_cast<hipError_t>(
                ta_launch_attention_backward(&limits, &p, i, nullptr).error));
        CHECK_HIP(hipDeviceSynchronize());
        for (test_tensor *t : {&dq, &dk, &dv})
            t->download();
    }

    /* All numbers within their bounds, and nothing written anywhere else. */
    void check_tensor(const char *what, const test_tensor &got, const std::vector<int32_t> &rows,
                      const std::vector<total> &want)
    {
        std::vector<bool> due(static_cast<size_t>(got.count()), false);
        for (size_t i = 0; i < want.size(); i++) {
            int d = static_cast<int>(i) % got.dim, head = static_cast<int>(i) / got.dim % got.heads;
            int row = rows[i / static_cast<size_t>(got.dim * got.heads)];
            double x = got.get(row, head, d);
            double ratio = bound_compare(want[i].sum, want[i].bound(got.dtype), x);
            due[static_cast<size_t>(got.at(row, head, d))] = true;
            worst = fmax(worst, ratio);
            if (ratio <= 1)
                continue;
            std::string text = std::string(c.name) + ": " + what + "[" + std::to_string(i) +
                               "] is " + std::to_string(x) + ", expected " +
                               std::to_string(want[i].sum) + ", " + std::to_string(ratio) +
                               " bounds away [" + simt_settings() + "]";
            TEST_FAIL_MESSAGE(text.c_str());
        }
        for (int i = 0; i < got.count(); i++)
            if (!due[static_cast<size_t>(i)])
                TEST_ASSERT_TRUE_MESSAGE(number_is_poison(got.dtype, got.bytes.data(), i), c.name);
    }
    void check()
    {
        check_tensor("dQ", dq, query_rows, want_dq);
        check_tensor("dK", dk, key_rows, want_dk);
        check_tensor("dV", dv, key_rows, want_dv);
    }
};

template <class Test> static void in_three_orders(Test test)
{
    for (int wave = 32; wave <= 64; wave *= 2)
        for (int i = 0; i < 3; i++) {
            simt_set_wave(wave);
            simt_set_order(test_orders[i].order, test_orders[i].seed);
            test(wave, i);
        }
    simt_reset();
}

static void test_gradients_are_within_their_bounds(void)
{
    double worst = 0;
    for (const test_case &c : cases) {
        test_run run(c);
        run.expect();
        std::vector<unsigned char> first[3];
        in_three_orders([&](int, int order) {
            run.launch();
            run.check();
            const test_tensor *got[3] = {&run.dq, &run.dk, &run.dv};
            for (int i = 0; i < 3; i++) { /* the order of threads changes no bit */
                if (order == 0)
                    first[i] = got[i]->bytes;
                TEST_ASSERT_TRUE_MESSAGE(first[i] == got[i]->bytes, simt_settings());
            }
        });
        printf("%s: worst error %.2f of its bound\n", c.name, run.worst);
        worst = fmax(worst, run.worst);
    }
    TEST_ASSERT_TRUE_MESSAGE(worst > 0.125, "the bound allows for too much");
}

/* A NaN reaches the gradients that depend on it, and changes no bit of any other. */
static void check_poisoned(const test_case &c, int which)
{
    test_run run(c);
    run.expect();
    run.launch();
    std::vector<unsigned char> clean[3] = {run.dq.bytes, run.dk.bytes, run.dv.bytes};
    test_tensor *inputs[4] = {&run.q, &run.k, &run.v, &run.dout};
    bool of_query = which == 0 || which == 3;
    size_t spoilt = of_query ? static_cast<size_t>(c.queries / 2) : static_cast<size_t>(c.keys / 2);
    int row = of_query ? run.query_rows[spoilt] : run.key_rows[spoilt];
    inputs[which]->set(row, 0, 5, NAN);
    run.launch();
    std::string text = std::string(c.name) + ", NaN in input " + std::to_string(which);
    std::vector<bool> hit_row(static_cast<size_t>(c.queries), false); /* rows of KV head 0 */
    for (size_t i = 0; i < hit_row.size(); i++)
        hit_row[i] = of_query ? i == spoilt
                              : static_cast<int32_t>(spoilt) >= run.visible[i].first &&
                                    static_cast<int32_t>(spoilt) < run.visible[i].end;
    const test_tensor *got[3] = {&run.dq, &run.dk, &run.dv};
    for (int t = 0; t < 3; t++)
        for (size_t i = 0; i < (t == 0 ? run.query_rows : run.key_rows).size(); i++) {
            int to = (t == 0 ? run.query_rows : run.key_rows)[i];
            for (int head = 0; head < got[t]->heads; head++)
                for (int d = 0; d < got[t]->dim; d++) {
                    bool hit = false; /* may be NaN: it or a pair of its saw the NaN */
                    if (t == 0)
                        hit = hit_row[i] && (of_query ? head == 0 : run.kv_head(head) == 0);
                    else if (head == 0)
                        for (size_t r = 0; r < hit_row.size() && !hit; r++)
                            hit = hit_row[r] && run.visible[r].first <= static_cast<int32_t>(i) &&
                                  static_cast<int32_t>(i) < run.visible[r].end &&
                                  (of_query || i == spoilt);
                    size_t at =
                        static_cast<size_t>(got[t]->at(to, head, d)) * number_bytes(got[t]->dtype);
                    bool same = memcmp(got[t]->bytes.data() + at, clean[t].data() + at,
                                       number_bytes(got[t]->dtype)) == 0;
                    bool is_nan = isnan(got[t]->get(to, head, d));
                    /* Values and gradients of outputs reach dV in their own columns at most. */
                    bool must = hit && (t < 2 || which == 0 || (which == 1 && i == spoilt) ||
                                        (which == 3 && d == 5));
                    TEST_ASSERT_TRUE_MESSAGE(hit || same, text.c_str());
                    TEST_ASSERT_TRUE_MESSAGE(!must || is_nan, text.c_str());
                    TEST_ASSERT_TRUE_MESSAGE(must || same, text.c_str());
                }
        }
}

static void test_a_nan_stays_where_it_belongs(void)
{
    for (int wave = 32; wave <= 64; wave *= 2) {
        simt_set_wave(wave);
        for (int which = 0; which < 4; which++)
            for (int i = 3; i < 6; i++)
                check_poisoned(cases[i], which);
    }
}

/* Each of the three types is looked at by the kernels themselves. */
static void test_unknown_types_are_refused(void)
{
    ta_gpu_limits limits = {16, 32, 1, 65536, 131072, 0};
    for (int which = 0; which < 3; which++)
        for (int matrix = 0; matrix < 2; matrix++)
            for (int step = 0; step < 2; step++) {
                ta_attention_backward_params p;
                memset(&p, 0, sizeof p);
                p.common.work.dtype = p.gradient.dq_dtype = p.gradient.kv_dtype = TA_F16;
                ta_dtype *types[] = {&p.common.work.dtype, &p.gradient.dq_dtype,
                                     &p.gradient.kv_dtype};
                *types[which] = static_cast<ta_dtype>(77);
                limits.matrix = matrix;
                ta_launched result = ta_launch_attention_backward(&limits, &p, step, nullptr);
                TEST_ASSERT_EQUAL_INT(1, result.no_type);
                TEST_ASSERT_EQUAL_INT(77, result.dtype);
                TEST_ASSERT_TRUE(result.error != 0);
            }
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_unknown_types_are_refused);
    RUN_TEST(test_gradients_are_within_their_bounds);
    RUN_TEST(test_a_nan_stays_where_it_belongs);
    return UNITY_END() != 0;
}
