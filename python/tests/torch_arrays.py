"""Arrays of other libraries: JAX by DLPack, in the place of numpy's and torch's."""
import os
import unittest

os.environ.setdefault('JAX_PLATFORMS', 'cpu')

import jax
import jax.numpy as jnp
import numpy as np

import treeattn
from launch import main


class Jax(unittest.TestCase):
    def arrays(self, dtype):
        keys = jax.random.split(jax.random.PRNGKey(1), 3)
        return [jax.random.normal(key, shape).astype(dtype) for key, shape in
                zip(keys, ((2, 4, 16), (2, 30, 2, 16), (2, 30, 2, 16)))]

    def test_decode(self):
        """Inputs of JAX give what those of numpy do, bit by bit; the output is numpy's."""
        for dtype, name in ((jnp.float32, 'f32'), (jnp.float16, 'f16'), (jnp.bfloat16, 'bf16')):
            q, k, v = self.arrays(dtype)
            plan = treeattn.Plan(batch=2, query_heads=4, kv_heads=2, k_dim=16, kv_dtype=name,
                                 max_tokens=30)
            out = plan.decode(q, treeattn.KV(k, v, [30, 7]))
            same = plan.decode(np.asarray(q), treeattn.KV(np.asarray(k), np.asarray(v), [30, 7]))
            self.assertIsInstance(out, np.ndarray)
            self.assertEqual(out.tobytes(), same.tobytes())

    def test_8_bits(self):
        """JAX's float8 comes by DLPack with a code of its own."""
        q, k, v = self.arrays(jnp.float32)
        for dtype, name in ((jnp.float8_e4m3fn, 'e4m3'), (jnp.float8_e5m2, 'e5m2'),
                            (jnp.float8_e4m3fnuz, 'e4m3_fnuz'),
                            (jnp.float8_e5m2fnuz, 'e5m2_fnuz')):
            plan = treeattn.Plan(batch=2, query_heads=4, kv_heads=2, k_dim=16, kv_dtype=name,
                                 query_dtype='f32', max_tokens=30)
            narrow = [x.astype(dtype) for x in (k, v)]
            out = plan.decode(q, treeattn.KV(*narrow, [30, 7]))
            same = plan.decode(q, treeattn.KV(*(np.asarray(x).view(np.uint8) for x in narrow),
                                              [30, 7]))
            self.assertEqual(out.tobytes(), same.tobytes())

    def test_jax_is_never_written(self):
        q, k, v = self.arrays(jnp.float32)
        plan = treeattn.Plan(batch=2, query_heads=4, kv_heads=2, k_dim=16, kv_dtype='f32',
                             max_tokens=30)
        with self.assertRaisesRegex(ValueError, 'out is read-only'):
            plan.decode(q, treeattn.KV(k, v, [30, 7]), out=jnp.zeros_like(q))


if __name__ == '__main__':
    main()
