SELECT daybreak.fold_1()
