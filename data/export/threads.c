/* Parallel loops of a kernel: threads that are started once and wait for the next loop.
 *
 * A part of runtime.c, which includes it.
 */

/* How often an idle thread looks for work before it sleeps: about half a millisecond. Waking a
 * sleeping thread takes longer than a small kernel does. */
#define TT_SPINS 20000

typedef struct {
  void *sync_handle;
  int32_t num_task;
} tt_group;

typedef int (*tt_body)(int task, tt_group *group, void *data);

/* A worker takes part in every loop exactly once; `generation` tells it that there is a new one.
 * The loop's own fields are written before `generation` rises and stay until `pending` is zero. */
static struct {
  pthread_mutex_t turn; /* held for a whole loop: loops of several callers take turns */
  pthread_mutex_t mutex;
  pthread_cond_t wake, done;
  pthread_t threads[TT_THREADS];
  int started, workers;
  atomic_uint generation;
  atomic_int stop, sleeping, waiting, pending, failed;
  tt_body body;
  void *data;
  tt_group group;
  char message[sizeof tt_message];
} tt_pool = {.turn = PTHREAD_MUTEX_INITIALIZER,
             .mutex = PTHREAD_MUTEX_INITIALIZER,
             .wake = PTHREAD_COND_INITIALIZER,
             .done = PTHREAD_COND_INITIALIZER};

static void tt_pause(void) {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("isb");
#endif
}

/* Tasks are dealt out in a fixed way, so a thread finds in its cache what it left there. */
static void tt_run_tasks(int participant) {
  for (int task = participant; task < tt_pool.group.num_task; task += tt_pool.workers + 1) {
    tt_message[0] = '\0';
    if (tt_pool.body(task, &tt_pool.group, tt_pool.data) != 0 &&
        atomic_exchange(&tt_pool.failed, 1) == 0) {
      memcpy(tt_pool.message, tt_message, sizeof tt_message);
    }
  }
}

static void *tt_work(void *argument) {
  int participant = (int)(intptr_t)argument;
  unsigned seen = 0;
  for (;;) {
    for (int i = 0; i < TT_SPINS && atomic_load(&tt_pool.generation) == seen; ++i) {
      tt_pause();
    }
    if (atomic_load(&tt_pool.generation) == seen) {
      pthread_mutex_lock(&tt_pool.mutex);
      atomic_fetch_add(&tt_pool.sleeping, 1);
      while (atomic_load(&tt_pool.generation) == seen) {
        pthread_cond_wait(&tt_pool.wake, &tt_pool.mutex);
      }
      atomic_fetch_sub(&tt_pool.sleeping, 1);
      pthread_mutex_unlock(&tt_pool.mutex);
    }
    seen = atomic_load(&tt_pool.generation);
    if (atomic_load(&tt_pool.stop)) {
      return NULL;
    }
    tt_run_tasks(participant);
    if (atomic_fetch_sub(&tt_pool.pending, 1) == 1 && atomic_load(&tt_pool.waiting)) {
      pthread_mutex_lock(&tt_pool.mutex);
      pthread_cond_signal(&tt_pool.done);
      pthread_mutex_unlock(&tt_pool.mutex);
    }
  }
}

static void tt_next_generation(void) {
  atomic_fetch_add(&tt_pool.generation, 1);
  if (atomic_load(&tt_pool.sleeping)) {
    pthread_mutex_lock(&tt_pool.mutex);
    pthread_cond_broadcast(&tt_pool.wake);
    pthread_mutex_unlock(&tt_pool.mutex);
  }
}

/* A forked process has none of its parent's threads: it starts its own when it needs them. */
static void tt_after_fork(void) {
  pthread_mutex_init(&tt_pool.turn, NULL);
  pthread_mutex_init(&tt_pool.mutex, NULL);
  pthread_cond_init(&tt_pool.wake, NULL);
  pthread_cond_init(&tt_pool.done, NULL);
  tt_pool.started = tt_pool.workers = 0;
  atomic_store(&tt_pool.generation, 0);
  atomic_store(&tt_pool.sleeping, 0);
  atomic_store(&tt_pool.waiting, 0);
}

static void tt_start(void) {
  static int registered;
  sigset_t all, before;
  if (!registered) {
    registered = pthread_atfork(NULL, NULL, tt_after_fork) == 0;
  }
  sigfillset(&all); /* signals are for the program's own threads */
  pthread_sigmask(SIG_SETMASK, &all, &before);
  tt_pool.started = 1;
  while (tt_pool.workers < TT_THREADS - 1) {
    void *participant = (void *)(intptr_t)(tt_pool.workers + 1);
    if (pthread_create(&tt_pool.threads[tt_pool.workers], NULL, tt_work, participant) != 0) {
      break; /* the fewer that there are run all tasks */
    }
    ++tt_pool.workers;
  }
  pthread_sigmask(SIG_SETMASK, &before, NULL);
}

static int tt_launch(tt_body body, void *data, int tasks) {
  pthread_mutex_lock(&tt_pool.turn);
  if (!tt_pool.started) {
    tt_start();
  }
  tt_pool.body = body;
  tt_pool.data = data;
  tt_pool.group.num_task = tasks > 0 ? tasks : TT_THREADS;
  atomic_store(&tt_pool.failed, 0);
  atomic_store(&tt_pool.pending, tt_pool.workers);
  tt_next_generation();
  tt_run_tasks(0);
  for (int i = 0; i < TT_SPINS && atomic_load(&tt_pool.pending); ++i) {
    tt_pause();
  }
  if (atomic_load(&tt_pool.pending)) {
    pthread_mutex_lock(&tt_pool.mutex);
    atomic_store(&tt_pool.waiting, 1);
    while (atomic_load(&tt_pool.pending)) {
      pthread_cond_wait(&tt_pool.done, &tt_pool.mutex);
    }
    atomic_store(&tt_pool.waiting, 0);
    pthread_mutex_unlock(&tt_pool.mutex);
  }
  int failed = atomic_load(&tt_pool.failed);
  if (failed) {
    memcpy(tt_message, tt_pool.message, sizeof tt_message);
  }
  pthread_mutex_unlock(&tt_pool.turn);
  return failed ? -1 : 0;
}

static void tt_stop_threads(void) {
  pthread_mutex_lock(&tt_pool.turn);
  atomic_store(&tt_pool.stop, 1);
  tt_next_generation();
  for (int i = 0; i < tt_pool.workers; ++i) {
    pthread_join(tt_pool.threads[i], NULL);
  }
  tt_pool.workers = 0;
  pthread_mutex_unlock(&tt_pool.turn);
}
