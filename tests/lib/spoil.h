/* Functions that spoil one thing each, for tables of mistakes. A program names what is spoiled:
 *
 *     #define SPOIL(name, change) SPOIL_FUNCTION(spoil_##name, ta_plan_config *config, change)
 *     SPOIL(batch, config->batch = 1)
 */
#ifndef TESTS_SPOIL_H
#define TESTS_SPOIL_H

#define SPOIL_FUNCTION(function, parameter, change)                                                \
    static void function(parameter)                                                                \
    {                                                                                              \
        change;                                                                                    \
    }

#endif
