//! Programs that run in the background.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use toolwright_host::process::Process;
use toolwright_tool::core::ThreadId;

/// How many that have ended are kept for a last look.
const ENDED_KEPT: usize = 32;

/// One of them, and how much of its outputs was shown.
pub(super) struct Job {
    pub(super) process: Process,
    pub(super) command: String,
    pub(super) shown: Mutex<(u64, u64)>,
}

struct Entry {
    thread: Option<ThreadId>,
    job: Arc<Job>,
}

/// All of one shell tool. A thread sees its own alone.
pub(super) struct Jobs {
    most: usize,
    entries: Mutex<(u64, BTreeMap<u64, Entry>)>,
}

impl Jobs {
    pub(super) fn new(most: usize) -> Self {
        Self { most, entries: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, (u64, BTreeMap<u64, Entry>)> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts one and gives it an id, unless too many run.
    pub(super) fn start<E>(
        &self,
        thread: Option<&ThreadId>,
        command: &str,
        start: impl FnOnce() -> Result<Process, E>,
    ) -> Result<Result<String, E>, usize> {
        let mut entries = self.lock();
        let running = entries.1.values().filter(|entry| entry.thread.as_ref() == thread && !entry.job.process.has_ended()).count();
        if running >= self.most {
            return Err(running);
        }
        let process = match start() {
            Ok(process) => process,
            Err(error) => return Ok(Err(error)),
        };
        let ended: Vec<u64> = entries.1.iter().filter(|(_, entry)| entry.job.process.has_ended()).map(|(number, _)| *number).collect();
        for number in ended.iter().take(ended.len().saturating_sub(ENDED_KEPT)) {
            entries.1.remove(number);
        }
        entries.0 += 1;
        let number = entries.0;
        let job = Arc::new(Job { process, command: command.to_owned(), shown: Mutex::default() });
        entries.1.insert(number, Entry { thread: thread.cloned(), job });
        Ok(Ok(format!("job_{number}")))
    }

    /// The one of this id, where it is this thread's.
    pub(super) fn get(&self, thread: Option<&ThreadId>, id: &str) -> Option<Arc<Job>> {
        let number: u64 = id.trim().strip_prefix("job_")?.parse().ok()?;
        self.lock().1.get(&number).filter(|entry| entry.thread.as_ref() == thread).map(|entry| Arc::clone(&entry.job))
    }

    /// The ids of this thread's, for a sentence.
    pub(super) fn ids(&self, thread: Option<&ThreadId>) -> Vec<String> {
        self.lock().1.iter().filter(|(_, entry)| entry.thread.as_ref() == thread).map(|(number, _)| format!("job_{number}")).collect()
    }
}
