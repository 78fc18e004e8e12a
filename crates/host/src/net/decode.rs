//! Unpacks a body while it comes in, and never makes more of it than is asked for.

use std::io::{self, Write};

use brotli_decompressor::DecompressorWriter;
use flate2::write::{DeflateDecoder, GzDecoder, ZlibDecoder};

/// What a request says it can unpack.
pub(super) const ACCEPTED: &str = "gzip, deflate, br";

/// How many gzip members one body may have. Members without content cost work and give nothing, so no limit on what comes out bounds them.
const MEMBERS: usize = 10_000;

/// Takes a body in pieces and gives it back unpacked, up to a limit.
pub(super) struct Decoder {
    packing: Packing,
    /// Whether anything came in at all.
    begun: bool,
}

#[allow(clippy::large_enum_variant, reason = "there is one for each response")]
enum Packing {
    None(Sink),
    Gzip {
        member: GzDecoder<Sink>,
        members: usize,
    },
    /// Servers send two things under the name `deflate`; the first two bytes tell.
    Deflate {
        seen: Vec<u8>,
        limit: usize,
    },
    Zlib(ZlibDecoder<Sink>),
    Raw(DeflateDecoder<Sink>),
    Brotli(Box<DecompressorWriter<Sink>>),
}

impl Decoder {
    /// For the `content-encoding` of a response; an error names one that was not asked for.
    pub(super) fn new(encoding: &str, limit: usize) -> Result<Self, String> {
        let sink = Sink { bytes: Vec::new(), room: limit, full: false };
        let packing = match encoding.trim().to_ascii_lowercase().as_str() {
            "" | "identity" => Packing::None(sink),
            "gzip" | "x-gzip" => Packing::Gzip { member: GzDecoder::new(sink), members: 1 },
            "deflate" => Packing::Deflate { seen: Vec::new(), limit },
            "br" => Packing::Brotli(Box::new(DecompressorWriter::new(sink, 4096))),
            other => return Err(format!("it is packed as `{}`, which was not asked for", other.chars().take(40).collect::<String>())),
        };
        Ok(Self { packing, begun: false })
    }

    /// Whether what comes out is what comes in.
    pub(super) fn is_plain(&self) -> bool {
        matches!(self.packing, Packing::None(_))
    }

    /// Takes a piece and gives what came out of it. Once [`Self::is_full`], the rest is lost.
    pub(super) fn push(&mut self, piece: &[u8]) -> Result<Vec<u8>, String> {
        if self.wants_large_window(piece) {
            return Err("it needs more memory to unpack than a page may".to_owned());
        }
        self.begun |= !piece.is_empty();
        let pushed = self.write(piece);
        if self.is_full() {
            // What stopped it was the limit.
            return Ok(self.take());
        }
        pushed.map_err(|error| format!("its packing is damaged ({error})"))?;
        Ok(self.take())
    }

    fn write(&mut self, piece: &[u8]) -> io::Result<()> {
        match &mut self.packing {
            Packing::None(sink) => sink.write_all(piece),
            Packing::Gzip { member, members } => {
                let mut rest = piece;
                while !rest.is_empty() {
                    let taken = member.write(rest)?;
                    if taken == 0 {
                        // The member is over, and another one follows.
                        member.try_finish()?;
                        *members += 1;
                        if *members > MEMBERS {
                            return Err(io::Error::other(format!("more than {MEMBERS} gzip members")));
                        }
                        let sink = std::mem::take(member.get_mut());
                        *member = GzDecoder::new(sink);
                        continue;
                    }
                    rest = rest.get(taken..).unwrap_or_default();
                }
                Ok(())
            }
            Packing::Deflate { seen, limit } => {
                seen.extend_from_slice(piece);
                let [first, second, ..] = seen.as_slice() else { return Ok(()) };
                // The head of a zlib stream: method 8, and a checksum over both bytes.
                let zlib = first & 0x0f == 8 && (u16::from(*first) << 8 | u16::from(*second)) % 31 == 0;
                let sink = Sink { bytes: Vec::new(), room: *limit, full: false };
                let seen = std::mem::take(seen);
                self.packing = if zlib { Packing::Zlib(ZlibDecoder::new(sink)) } else { Packing::Raw(DeflateDecoder::new(sink)) };
                self.write(&seen)
            }
            Packing::Zlib(decoder) => write_until_end(decoder, piece),
            Packing::Raw(decoder) => write_until_end(decoder, piece),
            Packing::Brotli(decoder) => decoder.write_all(piece),
        }
    }

    /// Whether a brotli stream wants a window of more than 16 MiB: an extension that no browser reads, and up to 1 GiB of memory.
    fn wants_large_window(&self, piece: &[u8]) -> bool {
        !self.begun && matches!(self.packing, Packing::Brotli(_)) && piece.first().is_some_and(|first| first & 0x7f == 0x11)
    }

    /// Says that nothing follows, and gives what was held back.
    pub(super) fn finish(&mut self) -> Result<Vec<u8>, String> {
        // Responses without content may name a packing all the same.
        if !self.begun || self.is_full() {
            return Ok(Vec::new());
        }
        let finished = match &mut self.packing {
            Packing::None(_) => Ok(()),
            Packing::Gzip { member, .. } => member.try_finish(),
            Packing::Deflate { seen, .. } if seen.is_empty() => Ok(()),
            Packing::Deflate { .. } => Err(io::ErrorKind::UnexpectedEof.into()),
            Packing::Zlib(decoder) => decoder.try_finish(),
            Packing::Raw(decoder) => decoder.try_finish(),
            Packing::Brotli(decoder) => decoder.close(),
        };
        if self.is_full() {
            return Ok(self.take());
        }
        finished.map_err(|error| format!("it ends before its packing does ({error})"))?;
        Ok(self.take())
    }

    /// Whether the limit is reached and more came out than it allows.
    pub(super) fn is_full(&self) -> bool {
        match &self.packing {
            Packing::None(sink) => sink.full,
            Packing::Gzip { member, .. } => member.get_ref().full,
            Packing::Deflate { .. } => false,
            Packing::Zlib(decoder) => decoder.get_ref().full,
            Packing::Raw(decoder) => decoder.get_ref().full,
            Packing::Brotli(decoder) => decoder.get_ref().full,
        }
    }

    fn take(&mut self) -> Vec<u8> {
        match &mut self.packing {
            Packing::None(sink) => std::mem::take(&mut sink.bytes),
            Packing::Gzip { member, .. } => std::mem::take(&mut member.get_mut().bytes),
            Packing::Deflate { .. } => Vec::new(),
            Packing::Zlib(decoder) => std::mem::take(&mut decoder.get_mut().bytes),
            Packing::Raw(decoder) => std::mem::take(&mut decoder.get_mut().bytes),
            Packing::Brotli(decoder) => std::mem::take(&mut decoder.get_mut().bytes),
        }
    }
}

/// Writes all, except for what stands after the end of the packed data: it counts for nothing.
fn write_until_end(decoder: &mut impl Write, piece: &[u8]) -> io::Result<()> {
    let mut rest = piece;
    while !rest.is_empty() {
        let taken = decoder.write(rest)?;
        if taken == 0 {
            return Ok(());
        }
        rest = rest.get(taken..).unwrap_or_default();
    }
    Ok(())
}

/// Where unpacked bytes go, as long as there is room.
#[derive(Default)]
struct Sink {
    bytes: Vec<u8>,
    room: usize,
    full: bool,
}

impl Write for Sink {
    fn write(&mut self, piece: &[u8]) -> io::Result<usize> {
        let kept = piece.len().min(self.room);
        self.bytes.extend_from_slice(piece.get(..kept).unwrap_or_default());
        self.room -= kept;
        if kept < piece.len() {
            self.full = true;
            return Err(io::ErrorKind::StorageFull.into());
        }
        Ok(kept)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use flate2::Compression;
    use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};

    use super::*;

    fn gzip(content: &[u8]) -> Vec<u8> {
        let mut packed = GzEncoder::new(Vec::new(), Compression::default());
        packed.write_all(content).unwrap();
        packed.finish().unwrap()
    }

    /// Unpacks in pieces of some length: what came out, and whether the limit was reached.
    fn unpack(encoding: &str, packed: &[u8], limit: usize, piece: usize) -> Result<(Vec<u8>, bool), String> {
        let mut decoder = Decoder::new(encoding, limit)?;
        let mut out = Vec::new();
        for piece in packed.chunks(piece) {
            out.extend(decoder.push(piece)?);
            if decoder.is_full() {
                return Ok((out, true));
            }
        }
        out.extend(decoder.finish()?);
        Ok((out, decoder.is_full()))
    }

    fn text() -> Vec<u8> {
        (0..5000u32).flat_map(|n| format!("line {n}\n").into_bytes()).collect()
    }

    #[test]
    fn every_packing_is_undone_in_pieces_of_any_length() {
        let text = text();
        let mut zlib = ZlibEncoder::new(Vec::new(), Compression::default());
        zlib.write_all(&text).unwrap();
        let mut raw = DeflateEncoder::new(Vec::new(), Compression::default());
        raw.write_all(&text).unwrap();
        let mut many = gzip(&text);
        many.extend(gzip(b"more"));
        let mut twice = text.clone();
        twice.extend_from_slice(b"more");
        for (encoding, packed, content) in [
            ("", text.clone(), &text),
            ("identity", text.clone(), &text),
            ("GZip", gzip(&text), &text),
            ("x-gzip", many, &twice),
            ("deflate", zlib.finish().unwrap(), &text),
            ("deflate", raw.finish().unwrap(), &text),
            ("br", BROTLI.to_vec(), &b"hello, hello, hello, hello".to_vec()),
        ] {
            for piece in [1, 7, 100_000] {
                assert_eq!(unpack(encoding, &packed, 1 << 20, piece).unwrap(), (content.clone(), false), "{encoding} by {piece}");
            }
            let (start, full) = unpack(encoding, &packed, 10, 7).unwrap();
            assert!(full && content.starts_with(&start) && start.len() == 10, "{encoding}: {} bytes", start.len());
        }
    }

    /// A brotli stream of one uncompressed block, made by hand: window bits, length, then the bytes, then an empty last block.
    const BROTLI: &[u8] = b"\x8b\x0c\x80hello, hello, hello, hello\x03";

    // case: field-reports 124
    #[test]
    fn a_bomb_stops_at_the_limit() {
        let bomb = gzip(&vec![0; 10 << 20]);
        assert!(bomb.len() < 20_000);
        let (out, full) = unpack("gzip", &bomb, 2 << 20, 8192).unwrap();
        assert_eq!((out.len(), full), (2 << 20, true));
    }

    // case: field-reports 125
    #[test]
    fn members_without_content_are_counted() {
        let empty = gzip(b"");
        let (out, full) = unpack("gzip", &empty.repeat(1025), 1 << 20, 8192).unwrap();
        assert_eq!((out.len(), full), (0, false));
        let error = unpack("gzip", &empty.repeat(MEMBERS + 1), 1 << 20, 8192).unwrap_err();
        assert!(error.contains("more than 10000 gzip members"), "{error}");
    }

    #[test]
    fn damage_and_other_packings_are_errors() {
        let packed = gzip(&text());
        assert!(unpack("gzip", packed.get(..packed.len() - 20).unwrap(), 1 << 20, 100).unwrap_err().contains("ends before"));
        assert!(unpack("gzip", b"no gzip at all", 1 << 20, 100).unwrap_err().contains("damaged"));
        assert!(unpack("br", b"\x11\x1e\x00\x00", 1 << 20, 100).unwrap_err().contains("more memory"));
        assert!(unpack("br", b"\xff\xff\xff\xff\xff\xff", 1 << 20, 100).is_err());
        assert!(unpack("zstd", b"", 10, 10).unwrap_err().contains("`zstd`"));
        assert!(unpack("gzip, gzip", b"", 10, 10).is_err());
        assert_eq!(unpack("gzip", b"", 10, 10).unwrap(), (Vec::new(), false));
    }
}
