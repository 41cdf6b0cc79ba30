/* A vendor's BLAS that makes no handle, for test_llama_device.c: it must be closed again. */
int cublasCreate_v2(void **handle);
int cublasDestroy_v2(void *handle);
int cublasSetStream_v2(void *handle, void *stream);
int cublasGemmEx(void);

int cublasCreate_v2(void **handle)
{
    (void)handle;
    return 3;
}

int cublasDestroy_v2(void *handle)
{
    (void)handle;
    return 1;
}

int cublasSetStream_v2(void *handle, void *stream)
{
    (void)handle;
    (void)stream;
    return 1;
}

int cublasGemmEx(void)
{
    return 1;
}
