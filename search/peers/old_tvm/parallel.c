/* Launches the tasks of a parallel loop with OpenMP: the package's own runtime was built to, but
   runs them one after the other. */
#include <omp.h>
#include <stdint.h>
#include <stdlib.h>

typedef struct {
  void *barrier;
  int32_t tasks;
} group;
typedef int (*task)(int number, group *of, void *closure);

static int launch(task run, void *closure, int tasks) {
  const char *threads = getenv("TVM_NUM_THREADS");
  if (tasks == 0) tasks = threads ? atoi(threads) : omp_get_num_procs();
  int failed = 0;
#pragma omp parallel num_threads(tasks) reduction(| : failed)
  for (int number = omp_get_thread_num(); number < tasks; number += omp_get_num_threads()) {
    group of = {NULL, tasks};
    failed |= run(number, &of, closure) != 0;
  }
  return failed ? -1 : 0;
}

/* Hidden, so that the runtime which loads the library does not find it and put in its own. */
__attribute__((visibility("hidden"))) int (*__TVMBackendParallelLaunch)(task, void *, int) = launch;
