-- What was claimed is a prefix of the lane: one range delete for the whole batch.
DELETE FROM ready WHERE lane = ? AND (band, ord, seq) <= (?, ?, ?)
