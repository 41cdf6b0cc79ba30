/* The version of the headers. meson.build reads these three numbers for the project version and the
 * soname, so this file is the only place that states them. */
#ifndef TREEATTN_VERSION_H
#define TREEATTN_VERSION_H

#define TA_VERSION_MAJOR 0
#define TA_VERSION_MINOR 2
#define TA_VERSION_PATCH 0

/* One number that grows with every release: 10000 * major + 100 * minor + patch. */
#define TA_VERSION (10000 * TA_VERSION_MAJOR + 100 * TA_VERSION_MINOR + TA_VERSION_PATCH)

#endif
