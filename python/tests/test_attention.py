"""Attention over full sequences against the definition and its differences; clusters; maps."""
import unittest

import numpy as np

import treeattn
from launch import main, run
from truth import attend

NEEDS = ['numpy']
HEADS, KV_HEADS, DIM = 4, 2, 8
LENGTHS = (19, 30)


def numbers(seed, *shape):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


Q = [numbers(i, n, HEADS, DIM) for i, n in enumerate(LENGTHS)]
K = [numbers(10 + i, n, KV_HEADS, DIM) for i, n in enumerate(LENGTHS)]
V = [numbers(20 + i, n, KV_HEADS, DIM) for i, n in enumerate(LENGTHS)]
DOUT = [numbers(30 + i, n, HEADS, DIM) for i, n in enumerate(LENGTHS)]


def gradients(q, k, v, dout):
    """By the formula, in double: d(softmax) = p · (dp − Σ p·dp)."""
    q, k, v, dout = (np.asarray(x, np.float64) for x in (q, k, v, dout))
    share = HEADS // KV_HEADS
    keys, values = np.repeat(k, share, 1), np.repeat(v, share, 1)
    scores = np.einsum('thd,nhd->htn', q, keys) * DIM ** -0.5
    scores[:, np.triu(np.ones(scores.shape[1:], bool), 1)] = -np.inf
    p = np.exp(scores - scores.max(2, keepdims=True))
    p /= p.sum(2, keepdims=True)
    dp = np.einsum('the,nhe->htn', dout, values)
    ds = p * (dp - (p * dp).sum(2, keepdims=True)) * DIM ** -0.5
    dk = np.einsum('htn,thd->nhd', ds, q)
    dv = np.einsum('htn,the->nhe', p, dout)

    def shared(x):
        return x.reshape(len(x), KV_HEADS, share, DIM).sum(2)
    return np.einsum('htn,nhd->thd', ds, keys), shared(dk), shared(dv)


class Full(unittest.TestCase):
    def test_forward_and_backward(self):
        for ranks, kind in ((1, 'zigzag'), (2, 'block_cyclic'), (4, 'zigzag')):
            block = 4 if kind == 'block_cyclic' else 5
            where = treeattn.ShardMap(kind, ranks, block)

            def rank_main(group):
                mine = [where.positions(group.rank, n) for n in LENGTHS]

                def pack(x):
                    return np.concatenate([x[i][mine[i]] for i in range(2)])
                q, k, v, dout = pack(Q), pack(K), pack(V), pack(DOUT)
                plan = treeattn.Attention(group, query_heads=HEADS, kv_heads=KV_HEADS, k_dim=DIM,
                                          dtype='f32', max_tokens=64,
                                          shard_map=treeattn.ShardMap(kind, block=block))
                lse = np.empty((len(q), HEADS), np.float32)
                out = plan.forward(q, k, v, LENGTHS, lse=lse)
                found = (out, lse, *plan.backward(q, k, v, LENGTHS, out, lse, dout))
                self.assertEqual(plan.stats().backward_calls, 1)
                self.assertIn('grid', plan.explain())
                with self.assertRaisesRegex(ValueError, 'k has shape'):
                    plan.forward(q, q, v, LENGTHS)
                return mine, found
            for mine, found in run(ranks, rank_main):
                wanted = []
                for i in range(2):
                    out, lse = attend(Q[i], K[i], V[i])
                    wanted.append([x[mine[i]] for x in
                                   (out, lse, *gradients(Q[i], K[i], V[i], DOUT[i]))])
                for a, b, c in zip(found, *wanted):
                    np.testing.assert_allclose(a, np.concatenate([b, c]), atol=5e-6, rtol=0)


class Maps(unittest.TestCase):
    def test_maps(self):
        where = treeattn.ShardMap('block_cyclic', 3, 4)
        self.assertEqual(where.locate(17), (1, 5))
        self.assertEqual(where.position(1, 5), 17)
        self.assertEqual([where.count(rank, 17) for rank in range(3)], [8, 5, 4])
        self.assertEqual(where.next(17), (1, 5))
        self.assertEqual(where.positions(2, 10), [8, 9])
        weighted = treeattn.ShardMap('weighted', 2, 1, [3, 1])
        self.assertEqual(weighted.positions(1, 9), [3, 7])
        moves = treeattn.reshard_list(where, treeattn.ShardMap('contiguous', 1, 100), 9)
        self.assertEqual([(m.from_rank, m.position, m.tokens) for m in moves],
                         [(0, 0, 4), (1, 4, 4), (2, 8, 1)])
        with self.assertRaisesRegex(ValueError, 'rank'):
            where.count(3, 1)
        self.assertEqual(list(treeattn.head_range(5, 2, 1)), [2, 3, 4])


class Clusters(unittest.TestCase):
    def test_predictions(self):
        with treeattn.Cluster('h100:2x8') as cluster:
            found = cluster.predict(16, batch=1, query_heads=32, kv_heads=8, k_dim=128,
                                    kv_dtype='bf16', max_tokens=65536,
                                    shard_map=treeattn.ShardMap('block_cyclic'))
            self.assertEqual(sum(p.chosen for p in found), 1)
            best = next(p for p in found if p.chosen)
            self.assertEqual(best.algorithm, 'tree')
            self.assertGreater(best.step.seconds, 0)
            full = cluster.predict_attention(16, query_heads=32, k_dim=128, dtype='bf16',
                                             max_tokens=8192)
            self.assertEqual(sum(p.chosen for p in full), 1)
            self.assertIn('device.memory', cluster.text())

    def test_probe(self):
        def rank_main(group):
            device = treeattn.Device('host', threads=1)
            return treeattn.Cluster.probe(group, device).text()
        texts = run(2, rank_main)
        self.assertEqual(texts[0], texts[1])


if __name__ == '__main__':
    main()
