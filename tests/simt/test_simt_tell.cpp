/* tell_step and hash_lists (hip/attend/tell.hip) launched directly: what a rank tells of its lists
 * is what the host would tell (src/decode/step_fault.c), whatever number of blocks hashes them. */
#include "simt_test.h"

#include <cstring>
#include <string>

#include "kernels.h"

#include "base/hash.h"

void setUp(void)
{
    simt_reset();
}

void tearDown(void)
{
    simt_reset();
}

static std::vector<int32_t> some_words(size_t count, uint32_t seed)
{
    std::vector<int32_t> words(count);
    for (size_t i = 0; i < count; i++) {
        seed = seed * 1664525u + 1013904223u;
        words[i] = seed >> 30 ? static_cast<int32_t>(seed >> 8) : -1;
    }
    return words;
}

static uint64_t hash_of(const std::vector<int32_t> &words)
{
    return ta_hash_words(words.data(), static_cast<uint32_t>(words.size()));
}

/* The lists of a call: positions, and the tables of two groups of prefixes; either may be none. */
struct lists {
    std::vector<int32_t> selected, starts, lengths;
};

static ta_fault expect(const lists &l, const std::vector<int32_t> &lengths)
{
    ta_fault told = ta_fault_of(TA_OK, 3);
    uint64_t hash = hash_of(l.selected);
    ta_fault_share(&told, TA_COMMON_LENGTHS, hash_of(lengths));
    if (!l.starts.empty())
        hash += ta_prefix_hash(hash_of(l.starts), hash_of(l.lengths));
    ta_fault_share(&told, TA_COMMON_LISTS, hash);
    return told;
}

/* With so many blocks before the one that tells; 0: it is alone. */
static void check(const lists &l, size_t blocks)
{
    const std::vector<int32_t> own_lengths = {7, 0, 1234};
    device_array<int32_t> lengths(own_lengths),
        selected(l.selected.empty() ? 1 : l.selected.size());
    device_array<int32_t> starts(l.starts.empty() ? 1 : l.starts.size());
    device_array<int32_t> prefixes(l.lengths.empty() ? 1 : l.lengths.size());
    device_array<uint64_t> sums(blocks ? blocks : 1);
    device_array<ta_fault> told(1);
    ta_tell_params p;
    memset(&p, 0, sizeof p);
    p.problem.batch = 3;
    p.problem.shard.ranks = 1;
    p.kv.lengths = lengths.data;
    p.tell.own = ta_fault_of(TA_OK, 3);
    p.tell.to = told.data;
    if (!l.selected.empty()) {
        CHECK_HIP(hipMemcpy(selected.data, l.selected.data(), l.selected.size() * sizeof(int32_t),
                            hipMemcpyHostToDevice));
        p.tell.selected = selected.data;
        p.tell.selected_words = l.selected.size();
    }
    if (!l.starts.empty()) {
        CHECK_HIP(hipMemcpy(starts.data, l.starts.data(), l.starts.size() * sizeof(int32_t),
                            hipMemcpyHostToDevice));
        CHECK_HIP(hipMemcpy(prefixes.data, l.lengths.data(), l.lengths.size() * sizeof(int32_t),
                            hipMemcpyHostToDevice));
        p.problem.prefix_starts = starts.data;
        p.problem.prefix_lengths = prefixes.data;
        p.problem.prefix_groups = static_cast<int32_t>(l.lengths.size());
    }
    p.sums = sums.data;
    p.sum_count = static_cast<int64_t>(blocks);
    if (blocks)
        TEST_ASSERT_EQUAL_INT(0, ta_launch_hash_lists(&p, nullptr).error);
    TEST_ASSERT_EQUAL_INT(0, ta_launch_tell(&p, nullptr).error);
    ta_fault expected = expect(l, own_lengths), got = told.read()[0];
    std::string text = std::to_string(l.selected.size()) + " words, " + std::to_string(blocks) +
                       " blocks [" + simt_settings() + "]";
    TEST_ASSERT_EQUAL_MEMORY_MESSAGE(&expected, &got, sizeof got, text.c_str());
}

/* Around the threads of a block, and around what one block hashes at most. */
static void test_every_number_of_words(void)
{
    for (size_t words : {1, 31, 511, 512, 513, TA_HASH_WORDS, TA_HASH_WORDS + 1, 30000}) {
        lists l = {some_words(words, static_cast<uint32_t>(words)), {}, {}};
        for (size_t blocks : {0, 1, 2, 3, 7})
            check(l, blocks);
    }
    lists many = {some_words(300000, 5), {}, {}};
    check(many, 0);
    check(many, 37);
    check(many, 600); /* more sums than tell_step has threads */
}

static void test_prefixes(void)
{
    lists l = {{}, {0, 2, 3}, {1000, 17}};
    check(l, 0);
    l.selected = some_words(20000, 9);
    check(l, 0);
    check(l, 3);
}

static void test_all_orders(void)
{
    lists l = {some_words(2000, 1), {0, 3}, {5}};
    in_all_orders([&] {
        check(l, 0);
        check(l, 3);
    });
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_every_number_of_words);
    RUN_TEST(test_prefixes);
    RUN_TEST(test_all_orders);
    return UNITY_END() != 0;
}
