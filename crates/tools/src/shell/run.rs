//! The three tools' bodies.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use serde_json::{Map, Value, json};
use toolwright_host::process::{Captured, Ended, How, ProcessError};
use toolwright_tool::{Tool, ToolContext, ToolError, ToolOutput, args};

use super::jobs::Job;
use super::{Shell, ShellError};

/// How often a running command shows what it has written.
const SHOWN_EVERY: Duration = Duration::from_millis(250);
/// The longest that `shell_output` waits for more.
const MAX_WAIT: Duration = Duration::from_secs(60);
/// What the tools may take beyond their own deadlines, so that these come first.
const MARGIN: Duration = Duration::from_secs(15);

/// What the shell tool takes.
#[args]
pub(super) struct ShellArgs {
    /// The command line.
    #[arg(length(min = 1))]
    pub command: String,
    /// How many milliseconds it may take.
    pub timeout_ms: Option<u64>,
    /// Leave it running and go on; read its output and kill it by the id that is returned.
    pub background: Option<bool>,
}

/// What reading a background program's output takes.
#[args]
pub(super) struct OutputArgs {
    /// The id, such as job_1.
    pub id: String,
    /// How many milliseconds to wait for more output, or for its end.
    pub wait_ms: Option<u64>,
}

/// What killing a background program takes.
#[args]
pub(super) struct KillArgs {
    /// The id, such as job_1.
    pub id: String,
}

pub(super) fn tools(shell: &Arc<Shell>) -> Result<Vec<Tool>, ShellError> {
    let options = &shell.options;
    let seconds = |duration: Duration| duration.as_secs_f64();
    let confined = match &options.sandbox {
        Some(sandbox) if sandbox.isolates() => " It runs in a sandbox.",
        _ => "",
    };
    let about = format!(
        "Runs a shell command and returns its exit code and output. No terminal, no input. It may take {} s, at most {} s.{confined}",
        seconds(options.default_timeout.min(options.max_timeout)),
        seconds(options.max_timeout)
    );
    let result_limit = options.max_output.saturating_mul(3).saturating_add(4_000);
    let run = Arc::clone(shell);
    let output = Arc::clone(shell);
    let kill = Arc::clone(shell);
    Ok(vec![
        Tool::new(&options.name, about)
            .destructive()
            .open_world()
            .approval(shell.approval())
            .timeout(options.max_timeout + options.grace + MARGIN)
            .result_limit(result_limit)
            .run_with(move |args: ShellArgs, cx| {
                let shell = Arc::clone(&run);
                async move { shell.run(args, cx).await }
            })?,
        Tool::new(format!("{}_output", options.name), "Reads what a command in the background has written since the last look.")
            .read_only()
            .timeout(MAX_WAIT + MARGIN)
            .result_limit(result_limit)
            .run_with(move |args: OutputArgs, cx| {
                let shell = Arc::clone(&output);
                async move { shell.output(args, cx).await }
            })?,
        Tool::new(format!("{}_kill", options.name), "Kills a command in the background and all that it started.")
            .idempotent()
            .timeout(options.grace + MARGIN)
            .result_limit(result_limit)
            .run_with(move |args: KillArgs, cx| {
                let shell = Arc::clone(&kill);
                async move { shell.kill(args, cx).await }
            })?,
    ])
}

impl Shell {
    async fn run(&self, args: ShellArgs, cx: ToolContext) -> Result<ToolOutput, ToolError> {
        // Said again here: what was approved is still not what may run.
        self.permits(&args.command).map_err(|why| ToolError::new(why).named("CommandRefusedError"))?;
        if args.background == Some(true) {
            return self.leave_running(&args, &cx);
        }
        let timeout = self.timeout(args.timeout_ms);
        let process = self.spawn(&args.command).deadline(timeout).start().map_err(failed)?;
        let cancelled = cx.cancelled();
        let mut pieces = process.pieces();
        let ended = loop {
            tokio::select! {
                ended = process.ended() => break ended,
                () = cancelled.cancelled() => break process.stop().await,
                changed = pieces.changed() => if changed.is_err() { break process.ended().await },
            }
            // A short command shows nothing on the way; a long one shows the latest, not every piece.
            tokio::select! {
                ended = process.ended() => break ended,
                () = cancelled.cancelled() => break process.stop().await,
                () = tokio::time::sleep(SHOWN_EVERY) => {
                    pieces.mark_unchanged();
                    let (out, err) = process.output();
                    cx.show(json!({ "stdout": self.shown(&out), "stderr": self.shown(&err), "running": true }));
                }
            }
        };
        Ok(ToolOutput::json(self.result(&ended.map_err(failed)?, timeout)))
    }

    fn leave_running(&self, args: &ShellArgs, cx: &ToolContext) -> Result<ToolOutput, ToolError> {
        let start = || {
            let spawn = self.spawn(&args.command);
            // In the background a command runs until it ends or is killed, unless the model says how long.
            args.timeout_ms.map_or_else(|| spawn.clone(), |ms| spawn.clone().deadline(Duration::from_millis(ms))).start()
        };
        let started = self.jobs.start(cx.thread_id(), &args.command, start).map_err(|running| {
            let kill = format!("{}_kill", self.options.name);
            ToolError::new(format!("{running} commands run in the background already; end one with `{kill}` first"))
                .named("TooManyJobsError")
        })?;
        let id = started.map_err(failed)?;
        let name = &self.options.name;
        let note = format!("it runs in the background; `{name}_output` reads what it writes, `{name}_kill` ends it");
        Ok(ToolOutput::json(json!({ "id": id, "running": true, "note": note })))
    }

    async fn output(&self, args: OutputArgs, cx: ToolContext) -> Result<ToolOutput, ToolError> {
        let job = self.job(&args.id, &cx)?;
        let (out, err) = *job.shown.lock().unwrap_or_else(PoisonError::into_inner);
        let wait = Duration::from_millis(args.wait_ms.unwrap_or(0)).min(MAX_WAIT);
        let cancelled = cx.cancelled();
        let mut pieces = job.process.pieces();
        let more = || {
            let (new_out, new_err) = job.process.output_since(out, err);
            new_out.written() + new_err.written() > 0
        };
        let until_more = async {
            while !more() && !job.process.has_ended() {
                tokio::select! {
                    _ = job.process.ended() => break,
                    changed = pieces.changed() => if changed.is_err() { break },
                }
            }
        };
        tokio::select! {
            _ = tokio::time::timeout(wait, until_more) => {}
            () = cancelled.cancelled() => {}
        }
        Ok(ToolOutput::json(Value::Object(self.look(&args.id, &job).await?)))
    }

    async fn kill(&self, args: KillArgs, cx: ToolContext) -> Result<ToolOutput, ToolError> {
        let job = self.job(&args.id, &cx)?;
        let had_ended = job.process.has_ended();
        job.process.stop().await.map_err(failed)?;
        let mut look = self.look(&args.id, &job).await?;
        look.insert("note".to_owned(), Value::String(if had_ended { "it had ended before" } else { "it was ended" }.to_owned()));
        Ok(ToolOutput::json(Value::Object(look)))
    }

    fn job(&self, id: &str, cx: &ToolContext) -> Result<Arc<Job>, ToolError> {
        self.jobs.get(cx.thread_id(), id).ok_or_else(|| {
            let ids = self.jobs.ids(cx.thread_id());
            let there = if ids.is_empty() { "nothing runs in the background".to_owned() } else { format!("there are {}", ids.join(", ")) };
            let shown = toolwright_tool::core::bounded(id, 60);
            ToolError::new(format!("there is no command `{shown}` in the background; {there}")).named("NoSuchJobError")
        })
    }

    /// What is new of a job, which is then not new any more.
    async fn look(&self, id: &str, job: &Job) -> Result<Map<String, Value>, ToolError> {
        let ended = if job.process.has_ended() { Some(job.process.ended().await.map_err(failed)?) } else { None };
        let (out, err) = {
            let mut shown = job.shown.lock().unwrap_or_else(PoisonError::into_inner);
            let (out, err) = job.process.output_since(shown.0, shown.1);
            shown.0 += out.written();
            shown.1 += err.written();
            (out, err)
        };
        let mut look = Map::new();
        look.insert("id".to_owned(), json!(id.trim()));
        look.insert("command".to_owned(), json!(toolwright_tool::core::bounded(&job.command, 200)));
        look.insert("running".to_owned(), json!(ended.is_none()));
        if let Some(ended) = &ended {
            look.insert("exitCode".to_owned(), json!(code(ended)));
            if ended.how == How::TimedOut {
                look.insert("timedOut".to_owned(), json!(true));
            }
        }
        look.insert("stdout".to_owned(), json!(self.shown(&out)));
        look.insert("stderr".to_owned(), json!(self.shown(&err)));
        Ok(look)
    }

    fn shown(&self, captured: &Captured) -> String {
        captured.shortened(self.options.max_output)
    }

    fn result(&self, ended: &Ended, timeout: Duration) -> Value {
        let mut result = Map::new();
        result.insert("exitCode".to_owned(), json!(code(ended)));
        result.insert("stdout".to_owned(), json!(self.shown(&ended.stdout)));
        result.insert("stderr".to_owned(), json!(self.shown(&ended.stderr)));
        match (ended.how, ended.signal) {
            (How::TimedOut, _) => {
                let note = format!(
                    "it did not end within {} ms and was ended with all that it started; ask for more with `timeout_ms` (at most {}), or run it with `background`",
                    timeout.as_millis(),
                    self.options.max_timeout.as_millis()
                );
                result.insert("timedOut".to_owned(), json!(true));
                result.insert("note".to_owned(), json!(note));
            }
            (How::Stopped, _) => {
                result.insert("aborted".to_owned(), json!(true));
                result.insert("note".to_owned(), json!("the run was stopped, and it was ended with all that it started"));
            }
            (How::Exited, Some(signal)) => {
                result.insert("note".to_owned(), json!(format!("signal {signal} ended it")));
            }
            (How::Exited, None) => {}
        }
        Value::Object(result)
    }
}

/// The exit code; that of a program which a signal ended is 128 and the signal's number, as shells have it. What was killed here has none.
fn code(ended: &Ended) -> Option<i32> {
    match ended.how {
        How::Exited => ended.code.or(ended.signal.map(|signal| 128 + signal)),
        How::TimedOut | How::Stopped => None,
    }
}

fn failed(error: ProcessError) -> ToolError {
    ToolError::from_error(error)
}
