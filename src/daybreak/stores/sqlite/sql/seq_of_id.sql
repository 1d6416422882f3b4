SELECT seq FROM job WHERE id = ?
