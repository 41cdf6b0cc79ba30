/* The module "hwloc": in which package and NUMA node a rank's CPUs or its GPU are. The only file
 * that knows libhwloc, so that the library needs none; device/module.c loads it, find.c asks.
 * hwloc's own variables count: with HWLOC_SYNTHETIC or HWLOC_XMLFILE it sees another machine
 * than this one. */
#include <hwloc.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

#include "base/status.h"
#include "device/module.h"

static const ta_core *core;

/* Parts of hwloc that would start up GPU runtimes to ask them; the PCI bus tells enough. Of that
 * the kernel's files tell all that is needed, where part "pci" opens each device and leaks. */
static void leave_out_parts(hwloc_topology_t topology)
{
    static const char *const names[] = {"cuda", "gl", "levelzero", "nvml", "opencl", "pci", "rsmi"};
    for (size_t i = 0; i < sizeof names / sizeof *names; ++i) /* it may have none of them */
        (void)hwloc_topology_set_components(topology, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST,
                                            names[i]);
}

/* Without what the kernel tells of CPUs hwloc would find nothing, and say so on stderr. Where it is
 * told to look elsewhere, it has no need of it. */
static int has_machine(void)
{
    char path[64];
    int found = getenv("HWLOC_SYNTHETIC") || getenv("HWLOC_XMLFILE") || getenv("HWLOC_FSROOT");
    for (int cpu = 0; cpu < CPU_SETSIZE && !found; ++cpu) {
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology", cpu);
        found = access(path, R_OK) == 0;
    }
    return found;
}

/* Where an allocation of its own fails hwloc ends the process, by a failed assertion or worse. It
 * is asked only if there is more memory than it takes: a machine of 4,096 cores takes 30 MiB. */
#define ENOUGH_BYTES ((size_t)48 << 20)

static int has_memory(void)
{
    void *trial = malloc(ENOUGH_BYTES);
    /* A compiler may leave out an allocation that nobody looks at. */
    __asm__ volatile("" : "+r"(trial) : : "memory");
    free(trial);
    return trial != NULL;
}

static ta_status load(const char *text, hwloc_topology_t *topology)
{
    int is_path = text && strchr(text, '/') != NULL, set = 0;
    if (getauxval(AT_SECURE)) /* it loads plug-ins from where its own variables say */
        return core->fail(TA_ERR_UNSUPPORTED, "hwloc is not used in set-uid programs");
    if (!text && !has_machine())
        return core->fail(TA_ERR_NOT_FOUND, "hwloc needs /sys, which is not mounted here");
    if (!has_memory())
        return core->fail(TA_ERR_NO_MEMORY,
                          "no memory for hwloc, which must have %zu bytes to spare", ENOUGH_BYTES);
    if (hwloc_topology_init(topology) != 0)
        return core->fail(TA_ERR_NO_MEMORY, "no memory for hwloc's topology");
    leave_out_parts(*topology);
    if (text)
        set = is_path ? hwloc_topology_set_xml(*topology, text)
                      : hwloc_topology_set_synthetic(*topology, text);
    if (set == 0 &&
        hwloc_topology_set_io_types_filter(*topology, HWLOC_TYPE_FILTER_KEEP_IMPORTANT) == 0 &&
        hwloc_topology_load(*topology) == 0)
        return TA_OK;
    hwloc_topology_destroy(*topology);
    return core->fail(TA_ERR_INVALID, "hwloc cannot load the topology of %s%s%s",
                      text ? "'" : "this machine", text ? text : "", text ? "'" : "");
}

/* The number of the one object of this type that these CPUs are in; -1: they are in none, or in
 * several. */
static int only_one(hwloc_topology_t topology, hwloc_obj_type_t type, hwloc_const_cpuset_t cpus)
{
    int found = -1;
    for (hwloc_obj_t o = NULL; (o = hwloc_get_next_obj_by_type(topology, type, o));) {
        if (!hwloc_bitmap_intersects(o->cpuset, cpus))
            continue;
        if (found >= 0)
            return -1;
        found = (int)o->logical_index;
    }
    return found;
}

/* The CPUs beside a GPU, or NULL if it is not in the topology. */
static hwloc_const_cpuset_t cpus_of_gpu(hwloc_topology_t topology, const char *pci)
{
    hwloc_obj_t gpu = *pci ? hwloc_get_pcidev_by_busidstring(topology, pci) : NULL;
    hwloc_obj_t beside = gpu ? hwloc_get_non_io_ancestor_obj(topology, gpu) : NULL;
    return beside ? beside->cpuset : NULL;
}

static ta_status find_place(const ta_place_question *question, ta_place *place)
{
    hwloc_topology_t topology;
    TA_TRY(load(question->topology, &topology));
    hwloc_bitmap_t own = hwloc_bitmap_alloc();
    if (!own) {
        hwloc_topology_destroy(topology);
        return core->fail(TA_ERR_NO_MEMORY, "no memory for a set of CPUs");
    }
    for (int i = 0; i < question->cpu_count; ++i)
        hwloc_bitmap_set(own, (unsigned)question->cpus[i]);
    hwloc_const_cpuset_t cpus = cpus_of_gpu(topology, question->pci);
    if (!cpus)
        cpus = own;
    place->package = only_one(topology, HWLOC_OBJ_PACKAGE, cpus);
    place->numa = only_one(topology, HWLOC_OBJ_NUMANODE, cpus);
    hwloc_topology_destroy(topology);
    hwloc_bitmap_free(own);
    return TA_OK;
}

static void describe(ta_text *text)
{
    hwloc_topology_t topology;
    if (load(NULL, &topology) != TA_OK) {
        core->text_add(text, "module hwloc sees: nothing, %s\n", core->last_error());
        return;
    }
    core->text_add(text, "module hwloc sees: %d packages, %d NUMA nodes, %d cores\n",
                   hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_PACKAGE),
                   hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_NUMANODE),
                   hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_CORE));
    hwloc_topology_destroy(topology);
}

static const ta_module module = {
    .size = sizeof module,
    .abi = TA_MODULE_ABI,
    .name = "hwloc",
    .archs = "hwloc " TA_HWLOC_VERSION,
    .describe = describe,
    .find_place = find_place,
};

TA_API const ta_module *ta_module_entry(int abi, const ta_core *given, int *module_abi);

const ta_module *ta_module_entry(int abi, const ta_core *given, int *module_abi)
{
    return ta_module_enter(abi, given, module_abi, &core, &module);
}
