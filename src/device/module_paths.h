/* Where modules are looked for: the directories of TREEATTN_MODULE_PATH, the one that the library
 * is in, and in a build that is not installed those of the build. Used by module.c; implemented in
 * module_paths.c. */
#ifndef TA_MODULE_PATHS_H
#define TA_MODULE_PATHS_H

#define TA_MODULE_PATH_VARIABLE "TREEATTN_MODULE_PATH"

/* A directory, or why it is `refused`: then nothing may be loaded from it. Returns 1 to see no
 * more. */
typedef int (*ta_module_path_fn)(void *context, const char *directory, const char *refused);

/* Returns whether a call returned 1. */
int ta_module_paths(ta_module_path_fn fn, void *context);

#endif
