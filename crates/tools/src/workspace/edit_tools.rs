//! `write_file`, `edit_file`, `multi_edit` and `apply_patch`.

use std::collections::BTreeMap;

use toolwright_host::files::RootedPath;
use toolwright_tool::{DefinitionError, Tool, ToolContext, ToolError, ToolOutput, args};

use super::change::{Change, current};
use super::edit::{Edit, Edited, replace};
use super::text::{Endings, Form, Text, Unwritable, with_crlf};
use super::{FileTool, Workspace, counted, file_path_of, patch, refused, run, seen, was_tried};

#[args]
struct WriteArgs {
    /// The file, such as src/main.rs.
    path: String,
    /// All that shall be in it.
    content: String,
}

/// Writes a file whole.
pub(super) fn write_file(workspace: &Workspace) -> Result<Tool, DefinitionError> {
    let defined = workspace.define(FileTool::WriteFile, "Writes a whole text file, in place of one that is there. Makes its folders.");
    run(workspace, defined, |workspace, args: WriteArgs, cx| async move {
        let path = file_path_of(&args.path)?;
        let _writing = workspace.writing.lock().await;
        let (at, content) = (path.clone(), args.content);
        let change = workspace.blocking(move |workspace| written(workspace, &at, &content)).await?;
        let size = change.after.as_ref().map_or(0, Vec::len);
        let is_new = change.before.is_none();
        let done = is_done(&workspace, &cx, std::slice::from_ref(&change)).await?;
        if !done {
            workspace.make(&cx, vec![change]).await?;
        }
        let what = if is_new { "a new file" } else { "in place of what was there" };
        Ok(ToolOutput::text(format!("wrote {} to {path}, {what}", counted(size, "byte", "bytes"))))
    })
}

/// New content for what is there: in its encoding, with its mark and its line endings, if they are all of one kind.
fn written(workspace: &Workspace, path: &RootedPath, content: &str) -> Result<Change, ToolError> {
    let before = current(&workspace.root, path, workspace.options.max_file)?;
    let old = before.as_ref().and_then(|before| Text::read(&before.bytes));
    let form = old.as_ref().map_or_else(Form::default, |old| old.form);
    let content = if form.mark { content.strip_prefix('\u{feff}').unwrap_or(content) } else { content };
    let is_crlf = old.is_some_and(|old| old.endings() == Endings::CrLf);
    let content = if is_crlf { with_crlf(content) } else { content.to_owned() };
    let after = form.bytes(&content).map_err(|lacks| unwritable(path, form, lacks))?;
    Ok(Change { path: path.clone(), before, after: Some(after), mode: None })
}

fn unwritable(path: &RootedPath, form: Form, Unwritable(character): Unwritable) -> ToolError {
    let name = form.encoding.name();
    refused(format!("{path} is in {name}, which has no {character:?}, so nothing was written; write it without that character"))
}

#[args]
struct EditArgs {
    /// The file, such as src/main.rs.
    path: String,
    /// Text that is in the file once, as it is there.
    old_string: String,
    /// What it becomes.
    new_string: String,
    /// Whether every place where it stands is changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    replace_all: Option<bool>,
}

/// Replaces text in a file.
pub(super) fn edit_file(workspace: &Workspace) -> Result<Tool, DefinitionError> {
    let defined = workspace.define(FileTool::EditFile, "Replaces text in a file, literally: one place, or all with replace_all.");
    run(workspace, defined, |workspace, args: EditArgs, cx| async move {
        let edits = vec![OneEdit { old_string: args.old_string, new_string: args.new_string, replace_all: args.replace_all }];
        edit(workspace, cx, &args.path, edits).await
    })
}

/// One replacement.
#[args]
struct OneEdit {
    /// Text that is in the file once, as it is there.
    old_string: String,
    /// What it becomes.
    new_string: String,
    /// Whether every place where it stands is changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    replace_all: Option<bool>,
}

#[args]
struct MultiEditArgs {
    /// The file, such as src/main.rs.
    path: String,
    /// The replacements, made one after the other; all of them or none.
    #[arg(length(min = 1))]
    edits: Vec<OneEdit>,
}

/// Replaces several texts in a file.
pub(super) fn multi_edit(workspace: &Workspace) -> Result<Tool, DefinitionError> {
    let defined = workspace.define(FileTool::MultiEdit, "Makes several replacements in one file, in order: all of them or none.");
    run(workspace, defined, |workspace, args: MultiEditArgs, cx| async move { edit(workspace, cx, &args.path, args.edits).await })
}

async fn edit(workspace: Workspace, cx: ToolContext, path: &str, edits: Vec<OneEdit>) -> Result<ToolOutput, ToolError> {
    let path = file_path_of(path)?;
    let _writing = workspace.writing.lock().await;
    let at = path.clone();
    let planned = workspace.blocking(move |workspace| Ok((current(&workspace.root, &at, workspace.options.max_file)?, edits))).await;
    let (before, edits) = planned?;
    let Some(before) = before else {
        return Err(refused(format!("there is no {path}; list its folder to see what is there, or write it with write_file")));
    };
    if let Some(call) = was_tried(&cx)
        && seen::is_done(&workspace, &cx, call, &path, Some(&before.bytes)).await?
    {
        return Ok(ToolOutput::text(format!("edited {path}, in an attempt that was cut short before it could say so")));
    }
    // Of a file that is not what it was, the old text says nothing.
    seen::check(&workspace, &cx, &path, Some(&before.bytes)).await?;
    let (text, lines) = edited(&path, &before.bytes, &edits)?;
    let after = text.form.bytes(&text.text).map_err(|lacks| unwritable(&path, text.form, lacks))?;
    let shown: Vec<String> = lines.iter().take(20).map(usize::to_string).collect();
    let more = if lines.len() > 20 { ", and more" } else { "" };
    let at = if lines.len() == 1 { "line" } else { "lines" };
    let done = format!("edited {path}: {}, at {at} {}{more}", counted(lines.len(), "replacement", "replacements"), shown.join(", "));
    workspace.make(&cx, vec![Change { path, before: Some(before), after: Some(after), mode: None }]).await?;
    Ok(ToolOutput::text(done))
}

/// A file's text after replacements, and the lines they were made on.
fn edited(path: &RootedPath, bytes: &[u8], edits: &[OneEdit]) -> Result<(Text, Vec<usize>), ToolError> {
    let mut text = Text::read(bytes).ok_or_else(|| refused(format!("{path} is no text, so there is nothing to replace in it")))?;
    let mut lines = Vec::new();
    for (at, edit) in edits.iter().enumerate() {
        // The mark is no part of the text: not of that which is looked for, and not of that which is put in.
        let unmarked = |given: &'_ str| if text.form.mark { given.trim_start_matches('\u{feff}').to_owned() } else { given.to_owned() };
        let (old, new) = (unmarked(&edit.old_string), unmarked(&edit.new_string));
        let made = replace(&text.text, Edit { old: &old, new: &new, all: edit.replace_all.unwrap_or(false) });
        let Edited { text: next, lines: there } = made.map_err(|misfit| {
            let which = if edits.len() == 1 { String::new() } else { format!("edit {} of {}: ", at + 1, edits.len()) };
            refused(format!("{path} is unchanged: {which}{misfit}"))
        })?;
        text.text = next;
        lines.extend(there);
    }
    Ok((text, lines))
}

#[args]
struct PatchArgs {
    /// The patch: a unified diff, or one from "*** Begin Patch" to "*** End Patch".
    patch: String,
}

/// Applies a patch.
pub(super) fn apply_patch(workspace: &Workspace) -> Result<Tool, DefinitionError> {
    let description = "Applies a patch over one or more files, all of it or none: a unified diff, or the format of *** Begin Patch.";
    let defined = workspace.define(FileTool::ApplyPatch, description);
    run(workspace, defined, |workspace, args: PatchArgs, cx| async move {
        let files = patch::read(&args.patch).map_err(|why| ToolError::invalid("patch", why))?;
        let _writing = workspace.writing.lock().await;
        if was_tried(&cx).is_some() && is_patched(&workspace, &cx, &files).await? {
            return Ok(ToolOutput::text("patched, in an attempt that was cut short before it could say so"));
        }
        let (changes, done) = workspace.blocking(move |workspace| patched(workspace, files)).await?;
        workspace.make(&cx, changes).await?;
        Ok(ToolOutput::text(done.join("\n")))
    })
}

/// Whether an attempt before this one made all that a patch says.
async fn is_patched(workspace: &Workspace, cx: &ToolContext, files: &[patch::FilePatch]) -> Result<bool, ToolError> {
    let mut wanted: BTreeMap<RootedPath, bool> = BTreeMap::new();
    for file in files {
        let path = file_path_of(&file.path)?;
        match &file.what {
            patch::What::Add { .. } | patch::What::Change { to: None, .. } => drop(wanted.insert(path, true)),
            patch::What::Delete => drop(wanted.insert(path, false)),
            patch::What::Change { to: Some(to), .. } => {
                wanted.insert(path, false);
                wanted.insert(file_path_of(to)?, true);
            }
        }
    }
    for (path, there) in wanted {
        let at = path.clone();
        let now = workspace.blocking(move |workspace| current(&workspace.root, &at, workspace.options.max_file)).await?;
        let now = now.map(|content| content.bytes);
        let done = if there { seen::is_done(workspace, cx, cx.call_id(), &path, now.as_deref()).await? } else { now.is_none() };
        if !done {
            return Ok(false);
        }
    }
    Ok(true)
}

/// What a patch makes of the files as they are, and what was done in words.
fn patched(workspace: &Workspace, files: Vec<patch::FilePatch>) -> Result<(Vec<Change>, Vec<String>), ToolError> {
    let mut plan = Plan { workspace, changes: Vec::new() };
    let mut done = Vec::new();
    for patch::FilePatch { path, what } in files {
        let path = file_path_of(&path)?;
        match what {
            patch::What::Add { content, executable } => {
                let change = plan.of(&path)?;
                if change.after.is_some() {
                    return Err(refused(format!("{path} is there already, so the patch can't add it; nothing was changed")));
                }
                change.after = Some(content.into_bytes());
                change.mode = executable.then_some(0o755);
                done.push(format!("added {path}"));
            }
            patch::What::Delete => {
                if plan.of(&path)?.after.take().is_none() {
                    return Err(refused(format!("there is no {path}, so the patch can't delete it; nothing was changed")));
                }
                done.push(format!("deleted {path}"));
            }
            patch::What::Change { hunks, to } => {
                let change = plan.of(&path)?;
                let Some(bytes) = &change.after else {
                    return Err(refused(format!("there is no {path}, so the patch can't change it; nothing was changed")));
                };
                let text =
                    Text::read(bytes).ok_or_else(|| refused(format!("{path} is no text, so it can't be patched; nothing was changed")))?;
                let next = patch::apply(&text.text, &hunks)
                    .map_err(|why| refused(format!("the patch does not fit {path}, and nothing was changed: {why}")))?;
                let after = text.form.bytes(&next).map_err(|lacks| unwritable(&path, text.form, lacks))?;
                let Some(to) = to else {
                    change.after = Some(after);
                    done.push(format!("changed {path}: {}", counted(hunks.len(), "hunk", "hunks")));
                    continue;
                };
                let mode = change.mode.or(change.before.as_ref().map(|before| before.stat.mode));
                change.after = None;
                let to = file_path_of(&to)?;
                let moved = plan.of(&to)?;
                if moved.after.is_some() {
                    return Err(refused(format!("{to} is there already, so the patch can't move {path} to it; nothing was changed")));
                }
                moved.after = Some(after);
                moved.mode = mode;
                done.push(format!("moved {path} to {to}"));
            }
        }
    }
    Ok((plan.changes, done))
}

/// Files that a patch is about, each once.
struct Plan<'a> {
    workspace: &'a Workspace,
    changes: Vec<Change>,
}

impl Plan<'_> {
    /// A file as it will be by then.
    fn of(&mut self, path: &RootedPath) -> Result<&mut Change, ToolError> {
        let at = if let Some(at) = self.changes.iter().position(|change| change.path == *path) {
            at
        } else {
            let before = current(&self.workspace.root, path, self.workspace.options.max_file)?;
            let after = before.as_ref().map(|before| before.bytes.clone());
            self.changes.push(Change { path: path.clone(), before, after, mode: None });
            self.changes.len() - 1
        };
        self.changes.get_mut(at).ok_or_else(|| refused(format!("{path} could not be planned")))
    }
}

/// Whether an attempt before this one made all of these changes.
async fn is_done(workspace: &Workspace, cx: &ToolContext, changes: &[Change]) -> Result<bool, ToolError> {
    let Some(call) = was_tried(cx) else { return Ok(false) };
    for change in changes {
        let there = change.before.as_ref().map(|before| before.bytes.as_slice());
        if !seen::is_done(workspace, cx, call, &change.path, there).await? {
            return Ok(false);
        }
    }
    Ok(true)
}
