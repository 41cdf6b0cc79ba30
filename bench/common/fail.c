/* See fail.h. */
#include "fail.h"

#include <stdarg.h>
#include <stdio.h>

#include "launch.h"

static void say(const char *command, int code, const char *sentence)
{
    fprintf(stderr, "treeattn-bench: %s\n", sentence);
    if (code == EXIT_USAGE)
        fprintf(stderr, "Try 'treeattn-bench %s --help'.\n", command);
}

static void say_format(const char *command, int code, const char *format, va_list arguments)
{
    char sentence[1400];
    vsnprintf(sentence, sizeof sentence, format, arguments);
    say(command, code, sentence);
}

int fail_alike(const char *command, int code, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    if (launch.rank == 0)
        say_format(command, code, format, arguments);
    va_end(arguments);
    return code;
}

int fail_alone(const char *command, int code, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    say_format(command, code, format, arguments);
    va_end(arguments);
    if (launch.mpi)
        launch_abort(code);
    return code;
}

int fail_agree(const char *command, int code, const char *sentence)
{
    double worst = code;
    launch_max(&worst, 1);
    double first = code == (int)worst ? -launch.rank : -launch.ranks;
    launch_max(&first, 1);
    if ((int)worst != EXIT_OK && (int)first == -launch.rank)
        say(command, code, sentence);
    return (int)worst;
}

int fail_code(ta_status status)
{
    if (status == TA_ERR_NOT_FOUND || status == TA_ERR_UNSUPPORTED)
        return EXIT_NO_DEVICE;
    return status == TA_ERR_INVALID ? EXIT_USAGE : EXIT_WRONG;
}
