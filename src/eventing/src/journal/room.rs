//! Frees space: removes unused segments, and moves the remaining events of an old segment.

use std::io;

use super::index::Place;
use super::recent::MEMORY;
use super::record::{self, Head, Recipient};
use super::store;
use super::writer::Writer;

impl Writer {
    /// Removes unused segments, and moves the remaining events of an old segment if space is short.
    pub(super) fn remove_old(&mut self, now: i64) {
        let is_short = self.shared.index.lock().bytes() > self.budget / 2;
        let since = if is_short { i64::MAX } else { now - MEMORY };
        loop {
            let removable = self.shared.index.lock().removable(self.store.current(), since);
            let Some(number) = removable else { break };
            if !self.remove(number) {
                return;
            }
        }
        if is_short {
            let sparse = self.shared.index.lock().sparse(self.store.current());
            if let Some((number, events)) = sparse
                && let Err(error) = self.rewrite(&events, now)
            {
                tracing::warn!(segment = number, %error, "a segment of the journal could not be made smaller");
            }
        }
    }

    fn remove(&self, number: u64) -> bool {
        if let Err(error) = self.store.remove(number) {
            tracing::warn!(segment = number, %error, "a segment of the journal could not be removed");
            return false;
        }
        self.shared.files.lock().remove(&number);
        self.shared.index.lock().forget(number);
        true
    }

    /// Writes waiting events again at the end of the journal, so that their segment can be removed.
    fn rewrite(&mut self, events: &[u64], now: i64) -> io::Result<()> {
        let (segment, begin) = self.store.end();
        let (mut bytes, mut moved) = (Vec::new(), Vec::new());
        for number in events {
            let entry = self.shared.index.lock().get(*number).cloned();
            let Some(mut entry) = entry else { continue };
            let file = self.shared.files.lock().get(&entry.place.segment).cloned();
            let file = file.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
            let event = match store::read(&file, &entry.place) {
                Ok(event) => event,
                // Because of a damaged record, its segment and all later segments would be kept forever.
                Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                    tracing::error!(event = number, "the record of an event is damaged: it is lost");
                    let mut index = self.shared.index.lock();
                    entry.to.iter().for_each(|(to, _)| _ = index.end(*number, to));
                    continue;
                }
                Err(error) => return Err(error),
            };
            let to = entry.to.iter().map(|(id, attempts)| Recipient { id: id.to_string(), attempts: *attempts });
            let (published, to) = (entry.published, to.collect());
            let from = bytes.len();
            let head = Head::Event { number: *number, published, to, attributes: event.attributes };
            record::encode(&head, &event.data, &mut bytes)?;
            entry.place = Place { segment, offset: begin + from as u64, length: bytes.len() - from };
            moved.push((*number, entry));
        }
        self.store.append(&bytes)?;
        self.store.sync()?;
        let mut index = self.shared.index.lock();
        index.wrote(segment, bytes.len() as u64, now);
        for (number, entry) in moved {
            index.insert(number, entry);
        }
        Ok(())
    }
}
