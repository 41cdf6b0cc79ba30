/* A shared object without the function that makes it a module. */
int ta_not_a_module(void);

int ta_not_a_module(void)
{
    return 1;
}
