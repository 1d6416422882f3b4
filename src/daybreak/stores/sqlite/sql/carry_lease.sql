UPDATE lease SET carry = ? WHERE seq = ?
