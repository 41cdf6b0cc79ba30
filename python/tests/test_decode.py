"""Plans against the definition in double: decode, ragged calls, pages, append, combine."""
import itertools
import unittest

import numpy as np

import treeattn
from launch import main, run
from truth import attend, bf16, from_bf16, narrow_numbers, shard

NEEDS = ['numpy']
HEADS, KV_HEADS, DIM = 6, 2, 16


def numbers(seed, *shape):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def plan_for(group, **options):
    merged = dict(batch=2, query_heads=HEADS, kv_heads=KV_HEADS, k_dim=DIM, kv_dtype='f32',
                  max_tokens=64, shard_map=treeattn.ShardMap('block_cyclic', block=4),
                  device=treeattn.Device('host', threads=1))
    merged.update(options)
    return treeattn.Plan(group, **merged)


def cache(group, k, v, room=64, dtype=np.float32):
    """K and V [rank's tokens] of sequences of different lengths."""
    where = treeattn.ShardMap('block_cyclic', ranks=group.size, block=4)
    return (np.stack([shard(x, where, group.rank, room) for x in k]).astype(dtype),
            np.stack([shard(x, where, group.rank, room) for x in v]).astype(dtype))


LENGTHS = (37, 22)
K = [numbers(10 + i, n, KV_HEADS, DIM) for i, n in enumerate(LENGTHS)]
V = [numbers(20 + i, n, KV_HEADS, DIM) for i, n in enumerate(LENGTHS)]


class Decode(unittest.TestCase):
    def test_ranks_windows_caps_and_sinks(self):
        q, sinks = numbers(1, 2, 3, HEADS, DIM), numbers(2, HEADS)
        for ranks, window, softcap, with_sinks in itertools.product(
                (1, 2, 3, 5), (0, 7), (0.0, 2.5), (False, True)):
            def rank_main(group):
                k, v = cache(group, K, V)
                lse = np.empty((2, 3, HEADS), np.float32)
                with plan_for(group, query_tokens=3) as plan:
                    out = plan.decode(q, treeattn.KV(k, v, np.array(LENGTHS, np.int32)), lse=lse,
                                      window=window, softcap=softcap,
                                      sinks=sinks if with_sinks else None, tag=7)
                return out, lse
            results = run(ranks, rank_main)
            for i in range(2):
                out, lse = attend(q[i], K[i], V[i], window=window, softcap=softcap,
                                  sinks=sinks if with_sinks else None)
                np.testing.assert_allclose(results[0][0][i], out, atol=2e-6, rtol=0)
                np.testing.assert_allclose(results[0][1][i], lse, atol=2e-6, rtol=1e-6)
            for out, lse in results[1:]:
                self.assertEqual(out.tobytes(), results[0][0].tobytes())
                self.assertEqual(lse.tobytes(), results[0][1].tobytes())

    def test_a_ragged_call_over_pages_that_append_filled(self):
        """Tokens come in chunks of all sizes; each attends to all before it."""
        chunks = [(5, 1), (16, 0), (3, 16), (13, 5)]
        page, entries = 4, 10
        q = [numbers(30 + i, n, HEADS, DIM) for i, n in enumerate(LENGTHS)]

        def rank_main(group):
            pool = np.full((2, 2 * entries, page, KV_HEADS, DIM), np.nan, np.float32)
            table = np.arange(2 * entries, dtype=np.int32)[::-1].reshape(2, entries).copy()
            lengths = np.zeros(2, np.int32)
            kv = treeattn.KV(pool[0], pool[1], lengths, page_table=table)
            plan = plan_for(group, query_tokens=16, max_tokens=entries * page)
            done = [[], []]
            for step, counts in enumerate(chunks):
                starts = np.cumsum((0,) + counts).astype(np.int32)
                part = [slice(n, n + count) for n, count in zip(lengths, counts)]
                pack = [np.concatenate([x[i][part[i]] for i in range(2)]) for x in (q, K, V)]
                lengths += np.array(counts, np.int32)
                plan.append(pack[1], pack[2], kv, starts=starts, tag=step + 1)
                out = plan.decode(pack[0], kv, starts=starts, tag=step + 1)
                for i in range(2):
                    done[i].append(out[starts[i]:starts[i + 1]])
            return [np.concatenate(x) for x in done]
        for ranks in (1, 3):
            for result in run(ranks, rank_main):
                for i in range(2):
                    out, _ = attend(q[i], K[i], V[i])
                    np.testing.assert_allclose(result[i], out, atol=2e-6, rtol=0)

    def test_strided_views_and_half_precision(self):
        """K as [batch, kv_heads, tokens, dim], and 16-bit elements, without copies."""
        q = numbers(3, 2, HEADS, DIM)
        for dtype in ('f16', 'bf16'):
            def rank_main(group):
                k, v = (np.ascontiguousarray(x.transpose(0, 2, 1, 3)) for x in cache(group, K, V))
                k, v, query = (x.astype(np.float16) if dtype == 'f16' else bf16(x)
                               for x in (k, v, q))
                kv = treeattn.KV(k.transpose(0, 2, 1, 3), v.transpose(0, 2, 1, 3), list(LENGTHS))
                return plan_for(group, kv_dtype=dtype).decode(query, kv)
            rounded = (lambda x: x.astype(np.float16)) if dtype == 'f16' else \
                (lambda x: from_bf16(bf16(x)))
            for result in run(2, rank_main):
                if dtype == 'bf16':
                    result = from_bf16(result)
                for i in range(2):
                    out, _ = attend(rounded(q[i])[None], rounded(K[i]), rounded(V[i]))
                    np.testing.assert_allclose(result[i], out[0], atol=1e-2, rtol=1e-2)

    def test_8_bits(self):
        """Appended with scales of their own, and read with what the definition makes of them."""
        q = numbers(11, 2, HEADS, DIM)
        starts = [0, LENGTHS[0], sum(LENGTHS)]
        for dtype, ranks in itertools.product(('e4m3', 'e5m2', 'e4m3_fnuz', 'e5m2_fnuz'), (1, 3)):
            def rank_main(group):
                k, v = (np.full((2, 64, KV_HEADS, DIM), 0x80, np.uint8) for _ in range(2))
                scales = np.full((2, 2, 64, KV_HEADS), np.nan, np.float32)
                kv = treeattn.KV(k, v, list(LENGTHS), k_scale=scales[0], v_scale=scales[1])
                plan = plan_for(group, kv_dtype=dtype, query_dtype='f32', query_tokens=LENGTHS[0])
                plan.append(np.concatenate(K), np.concatenate(V), kv, starts=starts,
                            make_scales=True)
                return plan.decode(q, kv, starts=[0, 1, 2]), k, v, scales
            results = run(ranks, rank_main)
            numbers_of = narrow_numbers(dtype)
            for i in range(2):
                near = attend(q[i][None], K[i], V[i])[0][0]
                for result in results:
                    np.testing.assert_allclose(result[0][i], near, atol=0.2)
                    self.assertEqual(result[0].tobytes(), results[0][0].tobytes())
                if ranks == 1:
                    out, k, v, scales = results[0]
                    k, v = (numbers_of[x[i, :LENGTHS[i]]] * s[i, :LENGTHS[i], :, None]
                            for x, s in ((k, scales[0]), (v, scales[1])))
                    np.testing.assert_allclose(k, K[i], atol=0.3)
                    np.testing.assert_allclose(out[i], attend(q[i][None], k, v)[0][0], atol=2e-6,
                                               rtol=0)

    def test_scales_that_do_not_fit(self):
        k = np.zeros((2, 64, KV_HEADS, DIM), np.uint8)
        for scale, word in ((np.ones(3, np.float32), 'shape'), (np.ones(1, np.float64), 'f64'),
                            (np.ones((2, 64, KV_HEADS, 1), np.float32), 'shape')):
            with self.assertRaisesRegex(ValueError, f'v_scale has .*{word}'):
                treeattn.KV(k, k, [1, 1], v_scale=scale)
        kv = treeattn.KV(k, k, [1, 1], k_scale=0.5)
        with plan_for(None, kv_dtype='e4m3', query_dtype='f32') as plan:
            plan.decode(numbers(1, 2, HEADS, DIM), kv)
        with plan_for(None, kv_dtype='f32') as plan, self.assertRaisesRegex(ValueError, 'k has'):
            plan.decode(numbers(1, 2, HEADS, DIM), kv)
        with self.assertRaisesRegex(ValueError, 'query_dtype'):
            plan_for(None, kv_dtype='e4m3')

    def test_heads_are_scattered(self):
        q = numbers(4, 2, HEADS, DIM)

        def rank_main(group):
            mine = treeattn.head_range(HEADS, group.size, group.rank)
            plan = plan_for(group, query_placement='heads', out_placement='root', out_root=1)
            k, v = cache(group, K, V)
            query = np.ascontiguousarray(q[:, mine.start:mine.stop]) if len(mine) else None
            out = np.empty((2, HEADS, DIM), np.float32) if group.rank == 1 else None
            return plan.decode(query, treeattn.KV(k, v, list(LENGTHS)), out)
        results = run(3, rank_main)
        self.assertIsNone(results[0])
        for i in range(2):
            np.testing.assert_allclose(results[1][i], attend(q[i][None], K[i], V[i])[0][0],
                                       atol=2e-6, rtol=0)

    def test_new_tokens_by_heads(self):
        new = numbers(5, 2, 1, KV_HEADS, DIM), numbers(6, 2, 1, KV_HEADS, DIM)
        q = numbers(7, 2, HEADS, DIM)

        def rank_main(group):
            k, v = cache(group, K, V)
            kv = treeattn.KV(k, v, [n + 1 for n in LENGTHS])
            mine = treeattn.head_range(KV_HEADS, group.size, group.rank)
            plan = plan_for(group, append_scattered=True)
            part = [x[:, :, mine.start:mine.stop] if len(mine) else None for x in new]
            plan.append(*part, kv, source='heads')
            return plan.decode(q, kv)
        for result in run(3, rank_main):
            for i in range(2):
                out, _ = attend(q[i][None], np.concatenate([K[i], new[0][i]]),
                                np.concatenate([V[i], new[1][i]]))
                np.testing.assert_allclose(result[i], out[0], atol=2e-6, rtol=0)

    def test_selected_positions(self):
        """Lists for all KV heads and for each; a row sees what its list has."""
        q = numbers(21, 2, HEADS, DIM)
        lists = np.array([[3, -1, 0, 11], [7, 2, 5, -1]], np.int32)
        for each in (False, True):
            selected = np.repeat(lists[:, None], KV_HEADS, 1) if each else lists

            def rank_main(group):
                kv = treeattn.KV(*cache(group, K, V), list(LENGTHS))
                return plan_for(group).decode(q, kv, selected=selected)
            for result in run(3, rank_main):
                for i in range(2):
                    seen = sorted(y for y in lists[i] if y >= 0)
                    out, _ = attend(q[i][None], K[i][seen], V[i][seen], causal=False)
                    np.testing.assert_allclose(result[i], out[0], atol=2e-6, rtol=0)

    def test_shared_prefixes(self):
        """The second sequence begins with the first tokens of the first one."""
        q, shared = numbers(22, 2, HEADS, DIM), 9

        def rank_main(group):
            kv = treeattn.KV(*cache(group, K, V), list(LENGTHS))
            plan = plan_for(group, shared_prefixes=True)
            return plan.decode(q, kv, prefix_starts=[0, 2], prefix_lengths=[shared])
        for result in run(2, rank_main):
            k, v = (np.concatenate([x[0][:shared], x[1][shared:]]) for x in (K, V))
            for i, whole in enumerate(((K[0], V[0]), (k, v))):
                out, _ = attend(q[i][None], *whole)
                np.testing.assert_allclose(result[i], out[0], atol=2e-6, rtol=0)

    def test_combine(self):
        q, sinks = numbers(8, HEADS, DIM)[None], numbers(9, HEADS)
        for base, with_sinks in itertools.product(('e', 2), (False, True)):
            def rank_main(group):
                part = slice(13 * group.rank, 13 * group.rank + 13) if group.rank else slice(0, 0)
                out, lse = attend(q, K[0][13:][part], V[0][13:][part], causal=False)
                if group.rank == 0:
                    out[:] = np.nan  # a rank without keys: not read
                lse = (lse / (np.log(2) if base == 2 else 1)).astype(np.float32)
                plan = treeattn.Plan(group, combine_only=True, batch=1, query_heads=HEADS,
                                     v_dim=DIM, query_dtype='f32')
                total = np.empty((1, 1, HEADS), np.float32)
                combined = plan.combine(out[None].astype(np.float32), lse[None], lse=total,
                                        base=base, sinks=sinks if with_sinks else None)
                return combined[0], total[0]
            results = run(3, rank_main)
            seen = np.r_[26:37]
            out, lse = attend(q, K[0][seen], V[0][seen], causal=False,
                              sinks=sinks if with_sinks else None)
            for result in results:
                np.testing.assert_allclose(result[0], out, atol=2e-6, rtol=0)
                np.testing.assert_allclose(result[1], lse, atol=2e-6, rtol=1e-6)

    def test_texts(self):
        cluster = treeattn.Cluster('h100:2x2')
        with plan_for(None, cluster=cluster) as plan:
            self.assertIn('tree', plan.explain())
            self.assertTrue(plan.explain(json=True).startswith('{'))
            k, v = cache(type('One', (), {'rank': 0, 'size': 1}), K, V)
            plan.decode(numbers(1, 2, HEADS, DIM), treeattn.KV(k, v, list(LENGTHS)))
            self.assertEqual(plan.stats().steps, 1)
            self.assertGreater(plan.stats().workspace_bytes, 0)
        with self.assertRaises(ValueError):
            plan.explain()


if __name__ == '__main__':
    main()
