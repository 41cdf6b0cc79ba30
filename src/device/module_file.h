/* A look at a module's file before the dynamic loader maps it: the loader trusts what the headers
 * say, and a file that was cut short or is something else can end the process inside dlopen(). Used
 * by module.c; implemented in module_file.c. */
#ifndef TA_MODULE_FILE_H
#define TA_MODULE_FILE_H

#include <stddef.h>

typedef enum ta_module_file {
    TA_MODULE_FILE_ABSENT,
    TA_MODULE_FILE_BAD, /* `why` says what is wrong with it */
    TA_MODULE_FILE_GOOD
} ta_module_file;

ta_module_file ta_module_file_check(const char *path, char *why, size_t capacity);

#endif
