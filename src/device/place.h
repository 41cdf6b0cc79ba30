/* Where a rank is inside its node: the package and NUMA node of its CPUs or of its GPU. Found by
 * the module "hwloc" (hwloc.c) for the probe (find.c), kept in a cluster. */
#ifndef TA_PLACE_H
#define TA_PLACE_H

#define TA_PCI_BYTES 16

typedef struct ta_place {
    int package, numa;      /* hwloc's logical numbers on the node; -1: not known, or several */
    char pci[TA_PCI_BYTES]; /* of its GPU, "0000:17:00.0"; "": none */
} ta_place;

typedef struct ta_place_question {
    const char *topology; /* NULL: this machine; or hwloc's synthetic text, or a path of its XML */
    const char *pci;      /* the GPU whose place it is; "": that of the CPUs */
    const int *cpus;      /* that the rank may run on, as the system numbers them */
    int cpu_count;
} ta_place_question;

#endif
