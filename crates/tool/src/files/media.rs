//! Media types: which one a name suggests, and which are text.

/// The media type that a file's name suggests by its ending.
pub fn media_type_of(name: &str) -> Option<&'static str> {
    let (_, ending) = name.rsplit_once('.')?;
    Some(match ending.to_ascii_lowercase().as_str() {
        "txt" | "log" | "ini" | "cfg" | "conf" => "text/plain",
        "md" | "markdown" => "text/markdown",
        "csv" => "text/csv",
        "tsv" => "text/tab-separated-values",
        "htm" | "html" => "text/html",
        "css" => "text/css",
        "js" | "mjs" | "cjs" => "text/javascript",
        "ts" | "tsx" | "mts" => "text/typescript",
        "py" => "text/x-python",
        "rs" => "text/x-rust",
        "sh" => "text/x-sh",
        "json" => "application/json",
        "jsonl" | "ndjson" => "application/x-ndjson",
        "xml" => "application/xml",
        "yaml" | "yml" => "application/yaml",
        "toml" => "application/toml",
        "sql" => "application/sql",
        "pdf" => "application/pdf",
        "zip" => "application/zip",
        "gz" => "application/gzip",
        "png" => "image/png",
        "jpg" | "jpeg" => "image/jpeg",
        "gif" => "image/gif",
        "webp" => "image/webp",
        "avif" => "image/avif",
        "svg" => "image/svg+xml",
        "mp3" => "audio/mpeg",
        "wav" => "audio/wav",
        "mp4" => "video/mp4",
        _ => return None,
    })
}

/// The ending of a file's name that suggests this media type.
pub fn ending_of(mime_type: &str) -> Option<&'static str> {
    const ENDINGS: [&str; 30] = [
        "txt", "md", "csv", "tsv", "html", "css", "js", "ts", "py", "rs", "sh", "json", "jsonl", "xml", "yaml", "toml", "sql", "pdf",
        "zip", "gz", "png", "jpg", "gif", "webp", "avif", "svg", "mp3", "wav", "mp4", "log",
    ];
    let essence = mime_type.split(';').next().unwrap_or_default().trim();
    ENDINGS.into_iter().find(|ending| media_type_of(&format!("x.{ending}")).is_some_and(|known| known.eq_ignore_ascii_case(essence)))
}

/// Whether content of this media type is text, and so can be searched.
pub fn is_text(mime_type: &str) -> bool {
    let essence = mime_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    if essence.starts_with("text/") || ["+json", "+xml", "+yaml"].into_iter().any(|ending| essence.ends_with(ending)) {
        return true;
    }
    let Some(kind) = essence.strip_prefix("application/") else { return false };
    matches!(
        kind.strip_prefix("x-").unwrap_or(kind),
        "json"
            | "ndjson"
            | "jsonlines"
            | "xml"
            | "yaml"
            | "toml"
            | "javascript"
            | "typescript"
            | "sql"
            | "graphql"
            | "sh"
            | "python"
            | "tex"
            | "markdown"
    )
}
